package promises

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const controlPlane = "linkerd"

// The workloads of the control plane.
var workloads = []string{
	"deployment/linkerd-identity", "deployment/linkerd-destination", "deployment/linkerd-policy",
	"deployment/linkerd-proxy-injector", "deployment/weft-watcher", "deployment/linkerd-heartbeat",
}

// everything is them and the bus.
var everything = append(slices.Clip(workloads), "statefulset/weft-nats")

// values are helm's arguments for this run.
func (b *bed) values() []string {
	return append([]string{"-n", controlPlane, "-f", "e2e/promises/testdata/values.yaml"}, b.ownValues()...)
}

// ownValues are those of them that weft takes as well: the images of this run.
func (b *bed) ownValues() []string {
	args := []string{"--values", "e2e/promises/testdata/patient.yaml", "--set", "registry=" + *registry, "--set", "linkerdVersion=" + *tag}
	name := *natsName
	if b.own != nil {
		args = append(args, "--set", "imagePullPolicy=Never")
		if name == "" {
			name = *registry + "/nats:" + *tag
		}
	}
	if at := strings.LastIndex(name, ":"); at > 0 {
		args = append(args, "--set", "nats.image.name="+name[:at], "--set", "nats.image.version="+name[at+1:])
	}
	return args
}

// skipInstalled skips if a kept cluster has a control plane.
func (b *bed) skipInstalled(t *testing.T) {
	t.Helper()
	if *state == "" {
		return
	}
	if _, err := b.get(lasting(t), "/api/v1/namespaces/"+controlPlane+"/services/linkerd-dst"); err == nil {
		b.installed = true
		t.Skip("it is installed already")
	}
}

func install(t *testing.T, b *bed) {
	t.Helper()
	b.skipInstalled(t)
	b.helm(t, "install", "weft-crds", "charts/weft-crds", "-n", controlPlane, "--create-namespace", "--set", "installGatewayAPI=true")
	b.helm(t, append([]string{"install", "weft-control-plane", "charts/weft-control-plane", "--wait", "--timeout", patience.String()}, b.values()...)...)
	b.checked(t)
}

// checked waits for the control plane, and lets weft check look at it.
func (b *bed) checked(t *testing.T) {
	t.Helper()
	b.rollout(t, controlPlane, everything...)
	out, err := b.weft(t, "check", "--wait", patience.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b.installed = true
	t.Logf("weft check: %d checks passed", strings.Count(out, "√"))
}

// upgraded goes to the previous revision's chart with debug logs, so that every
// pod changes, and from there to the present one. The issuer stays what it has been
// rotated to.
func upgraded(t *testing.T, b *bed) {
	t.Helper()
	chart := b.previousChart(t)
	w := b.watch(t)
	upgrade := func(chart string, more ...string) {
		args := append([]string{"upgrade", "weft-control-plane", chart, "--wait", "--timeout", patience.String()}, b.values()...)
		b.helm(t, append(args, more...)...)
		b.rollout(t, controlPlane, everything...)
	}
	issuer := b.issuer(t)
	upgrade(chart, "--set", "controllerLogLevel=debug")
	upgrade("charts/weft-control-plane")
	w.end(t)
	if b.issuer(t) != issuer {
		t.Error("an upgrade replaced the issuer")
	}
}

// previousChart writes the chart of another revision into a directory.
func (b *bed) previousChart(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	tar := filepath.Join(dir, "charts.tar")
	if _, err := b.run(t, "", "git", "archive", "-o", tar, *previous, "charts/weft-control-plane"); err != nil {
		t.Logf("revision %s has no chart, so the present one is upgraded with other values: %v", *previous, err)
		return "charts/weft-control-plane"
	}
	if _, err := b.run(t, "", "tar", "-C", dir, "-xf", tar); err != nil {
		t.Fatal(err)
	}
	rev, err := b.run(t, "", "git", "rev-parse", "--short", *previous)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("from the chart of %s", strings.TrimSpace(rev))
	return filepath.Join(dir, "charts", "weft-control-plane")
}

// uninstalled looks at every kind of object that the API server lists.
func uninstalled(t *testing.T, b *bed) {
	t.Helper()
	if *state != "" {
		t.Skip("-state keeps what is there")
	}
	b.kubectl(t, "delete", "namespace", "shop", "bank", "--ignore-not-found", "--timeout="+patience.String())
	b.helm(t, "uninstall", "weft-control-plane", "-n", controlPlane, "--wait", "--timeout", patience.String())
	b.nothingLeft(t, "helm uninstall")
	b.helm(t, "uninstall", "weft-crds", "-n", controlPlane, "--wait")
	b.kubectl(t, "delete", "namespace", controlPlane, "--timeout="+patience.String())
	if out := b.kubectl(t, "get", "crd", "-o", "name"); strings.Contains(out, "linkerd.io") {
		t.Logf("definitions stay, as helm's policy for them says:\n%s", out)
	}
}

// nothingLeft waits until the pods have ended, and looks for what stays.
func (b *bed) nothingLeft(t *testing.T, after string) {
	t.Helper()
	var left []string
	until(t, patience, "pods to end", func() error {
		var err error
		left, err = b.leftovers(t)
		if err == nil && slices.ContainsFunc(left, func(s string) bool { return strings.HasPrefix(s, "Pod ") }) {
			err = errors.New(strings.Join(left, "\n"))
		}
		return err
	})
	if len(left) > 0 {
		t.Errorf("%s leaves behind:\n%s", after, strings.Join(left, "\n"))
	}
}

// leftovers are objects that belong to Weft by their names or labels. Definitions
// are another chart's, events and what every namespace has are the cluster's.
func (b *bed) leftovers(t *testing.T) ([]string, error) {
	t.Helper()
	var kinds []string
	for kind := range strings.FieldsSeq(b.kubectl(t, "api-resources", "--verbs=list", "-o", "name")) {
		if !strings.HasPrefix(kind, "events") && !strings.HasPrefix(kind, "customresourcedefinitions.") {
			kinds = append(kinds, kind)
		}
	}
	text, err := b.run(t, "", b.tool("hyperkube"), "kubectl", "get", strings.Join(kinds, ","), "-A", "--ignore-not-found", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct {
				Name, Namespace string
				Labels          map[string]string
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, err
	}
	var out []string
	for _, i := range list.Items {
		m := i.Metadata
		ours := m.Namespace == controlPlane || strings.Contains(m.Name, "linkerd") || strings.Contains(m.Name, "weft") ||
			m.Labels["linkerd.io/control-plane-ns"] != ""
		clusters := m.Name == "kube-root-ca.crt" || m.Name == "default" && i.Kind == "ServiceAccount" || i.Kind == "Namespace" ||
			i.Kind == "APIService" || m.Labels["name"] == "weft-crds" // the other chart's release, and what its definitions serve
		if ours && !clusters {
			out = append(out, i.Kind+" "+strings.TrimPrefix(m.Namespace+"/"+m.Name, "/"))
		}
	}
	return out, nil
}
