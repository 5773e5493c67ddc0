package install

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/charts"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
)

func TestCNIFlags(t *testing.T) {
	t.Setenv(envRegistry, "")
	tests := map[string]struct {
		text  string
		value any
	}{
		"linkerd-version": {"v1", "v1"}, "registry": {"r/", "r"}, "proxy-uid": {"1", int64(1)}, "proxy-gid": {"-1", int64(-1)},
		"inbound-port": {"1", int64(1)}, "outbound-port": {"2", int64(2)}, "control-port": {"3", int64(3)}, "admin-port": {"4", int64(4)},
		"skip-inbound-ports": {"1-2", "1-2"}, "skip-outbound-ports": {"3", "3"}, "skip-subnets": {"10.0.0.0/8", "10.0.0.0/8"}, "redirect-ports": {"80", "80"},
		"cni-image": {"i", "i"}, "cni-image-version": {"v2", "v2"}, "cni-log-level": {"debug", "debug"}, "dest-cni-net-dir": {"/n", "/n"},
		"dest-cni-bin-dir": {"/b", "/b"}, "priority-class-name": {"p", "p"}, "use-wait-flag": {"true", true},
	}
	defaults, err := charts.Defaults(charts.CNI)
	if err != nil {
		t.Fatal(err)
	}
	if len(tests) != len(cniFlags()) {
		t.Errorf("%d flags, %d of them tested", len(cniFlags()), len(tests))
	}
	for _, f := range cniFlags() {
		cmd := &cobra.Command{}
		a := bind(cmd, cniFlags())
		if err := cmd.Flags().Parse([]string{"--" + f.Name + "=" + tests[f.Name].text}); err != nil {
			t.Fatal(err)
		}
		values, err := a.values(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := at(values, f.Values[0]); !cmp.Equal(got, tests[f.Name].value) {
			t.Errorf("--%s: %s = %v", f.Name, f.Values[0], got)
		}
		if _, ok := at(defaults, f.Values[0]); !ok {
			t.Errorf("the chart has no %s", f.Values[0])
		}
	}
}

func TestInstallCNI(t *testing.T) {
	docs, problem := run(t, "install-cni", "--cni-namespace", "net", "--registry", "reg.example", "--cni-image-version", "v9")
	if problem != "" {
		t.Fatal(problem)
	}
	daemons := find1(t, docs, "DaemonSet", "linkerd-cni")
	if ns := text(daemons, "metadata.namespace"); ns != "net" {
		t.Errorf("the plugin is in namespace %s", ns)
	}
	if !slices.ContainsFunc(docs, func(d manifest.Document) bool { return d.Object["kind"] == "Namespace" }) {
		t.Error("the namespace is missing")
	}
	pods, _ := at(daemons, "spec.template.spec.containers")
	if image := pods.([]any)[0].(Tree)["image"]; image != "reg.example/cni-plugin:v9" {
		t.Errorf("the image is %v", image)
	}
}
