package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftmesh/weft/charts"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
)

func at(of Tree, path string) (any, bool) {
	v, ok, err := unstructured.NestedFieldNoCopy(of, strings.Split(path, ".")...)
	return v, ok && err == nil
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFlags: every flag of install sets what it should, at paths that the chart
// has.
func TestFlags(t *testing.T) {
	t.Setenv(envRegistry, "")
	pem := write(t, "x.pem", "PEM")
	type want struct {
		text  string
		value any
	}
	tests := map[string]want{
		"cluster-domain":                   {"c.example", "c.example"},
		"identity-trust-domain":            {"t.example", "t.example"},
		"identity-external-issuer":         {"true", "kubernetes.io/tls"},
		"identity-external-ca":             {"true", true},
		"linkerd-cni-enabled":              {"true", true},
		"controller-log-level":             {"debug", "debug"},
		"controller-replicas":              {"3", int64(3)},
		"controller-uid":                   {"9", int64(9)},
		"controller-gid":                   {"-1", int64(-1)},
		"disable-h2-upgrade":               {"true", false},
		"disable-heartbeat":                {"true", true},
		"identity-issuance-lifetime":       {"12h", "12h"},
		"identity-clock-skew-allowance":    {"1m", "1m"},
		"identity-issuer-certificate-file": {pem, "PEM"},
		"identity-issuer-key-file":         {pem, "PEM"},
		"identity-trust-anchors-file":      {pem, "PEM"},
		"enable-endpoint-slices":           {"true", true},
		"registry":                         {"reg:5000/x/", "reg:5000/x"},
	}
	proxy := map[string]string{ // the rest is tested where they are
		"inbound-port": "1", "outbound-port": "2", "control-port": "3", "admin-port": "4", "skip-inbound-ports": "1-9", "skip-outbound-ports": "25",
		"skip-subnets": "10.0.0.0/8", "proxy-uid": "5", "proxy-gid": "6", "proxy-cpu-request": "1", "proxy-cpu-limit": "1", "proxy-memory-request": "1Mi",
		"proxy-memory-limit": "1Mi", "proxy-cpu": "1", "proxy-memory": "1Mi", "enable-external-profiles": "true", "default-inbound-policy": "deny",
		"image-pull-policy": "Never", "proxy-image": "x", "proxy-image-version": "v1", "proxy-version": "v1", "proxy-log-level": "debug",
	}
	defaults, err := charts.Defaults(charts.ControlPlane)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(firstFlags(), sharedFlags()...) {
		t.Run(f.Name, func(t *testing.T) {
			w, ok := tests[f.Name]
			if !ok {
				if w.text, ok = proxy[f.Name]; !ok {
					t.Fatal("the flag is not tested")
				}
				w.value, _ = f.Read(w.text)
			}
			cmd := &cobra.Command{}
			a := bind(cmd, append(firstFlags(), sharedFlags()...))
			if err := cmd.Flags().Parse([]string{"--" + f.Name + "=" + w.text}); err != nil {
				t.Fatal(err)
			}
			values, err := a.values(nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range f.Values {
				if got, _ := at(values, path); !cmp.Equal(got, w.value) {
					t.Errorf("%s = %v, want %v", path, got, w.value)
				}
				if _, ok := at(defaults, path); !ok {
					t.Errorf("the chart has no %s", path)
				}
			}
		})
	}
}

// TestLayers: files over high availability, flags over files, --set over all.
func TestLayers(t *testing.T) {
	t.Setenv(envRegistry, "env.example/")
	one := write(t, "one.yaml", "controllerReplicas: 4\nproxy: {logLevel: one, uid: 1}\n")
	two := write(t, "two.yaml", "proxy: {logLevel: two, gid: 2}\n")
	cmd := &cobra.Command{}
	a := bind(cmd, sharedFlags())
	a.bindHA(cmd)
	err := cmd.Flags().Parse([]string{
		"--ha", "-f", one, "--values", two, "--proxy-gid=3", "--proxy-uid=4", "--set", "proxy.uid=5,watcher.replicas=1", "--set-string", "linkerdVersion=12", "--set-file", "bus.tls.caPEM=" + two,
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.values(Tree{"clusterDomain": "kept", "proxy": Tree{"logLevel": "base", "cores": 2}})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]any{
		"clusterDomain": "kept", "proxy.cores": 2, "highAvailability": true, "controllerReplicas": 4.0, "proxy.logLevel": "two", "proxy.gid": int64(3),
		"proxy.uid": int64(5), "watcher.replicas": int64(1), "linkerdVersion": "12", "bus.tls.caPEM": "proxy: {logLevel: two, gid: 2}\n", "registry": "env.example",
	} {
		if value, _ := at(got, path); !cmp.Equal(value, want) {
			t.Errorf("%s = %v (%T), want %v (%T)", path, value, value, want, want)
		}
	}
}

func TestValuesRefuse(t *testing.T) {
	for _, args := range [][]string{
		{"-f", "/nowhere"}, {"-f", write(t, "x", "- 1")}, {"--set", "a"}, {"--set-file", "a=/nowhere"},
	} {
		cmd := &cobra.Command{}
		a := bind(cmd, nil)
		if err := cmd.Flags().Parse(args); err != nil {
			t.Fatal(err)
		}
		if _, err := a.values(nil); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
	for _, arg := range []string{"--identity-issuance-lifetime=0", "--identity-issuance-lifetime=x", "--controller-replicas=-1", "--controller-log-level=loud", "--identity-trust-anchors-file=/nowhere"} {
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		fs.Usage = func() {}
		manifest.BindFlags(fs, sharedFlags())
		if err := fs.Parse([]string{arg}); err == nil {
			t.Errorf("%s was taken", arg)
		}
	}
}

func TestWithout(t *testing.T) {
	in := Tree{"a": Tree{"b": Tree{"c": 1}}, "d": Tree{"e": 1, "f": 2}}
	got := without(in, "a.b.c", "d.e", "x.y")
	if diff := cmp.Diff(Tree{"d": Tree{"f": 2}}, got); diff != "" {
		t.Errorf("without() (-want +got):\n%s", diff)
	}
	if _, ok := at(in, "a.b.c"); !ok {
		t.Error("without() changed its argument")
	}
}
