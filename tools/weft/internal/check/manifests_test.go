package check

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftmesh/weft/charts"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

// The names that the checks look for are those that the charts make.
func TestChartsMakeWhatIsLookedFor(t *testing.T) {
	objects, err := clusterManifests(charts.Options{})
	if err != nil {
		t.Fatal(err)
	}
	made := func(kind, name string) bool {
		return slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	}
	w := &World{Namespace: "linkerd"}
	for _, name := range w.roles() {
		if !made("ClusterRole", name) || !made("ClusterRoleBinding", name) {
			t.Errorf("no chart makes the ClusterRole or the ClusterRoleBinding %s", name)
		}
	}
	for _, name := range crdNames {
		if !made("CustomResourceDefinition", name) {
			t.Errorf("no chart makes the CRD %s", name)
		}
	}
	if !made("MutatingWebhookConfiguration", injectorHook) || !made("Namespace", "linkerd") {
		t.Error("no chart makes the injector's webhook or the namespace")
	}
	rest, err := charts.Render(charts.ControlPlane, nil, charts.Options{})
	if err != nil {
		t.Fatal(err)
	}
	has := func(kind, name string) bool {
		return slices.ContainsFunc(rest, func(m charts.Manifest) bool { return m.Kind == kind && m.Name == name })
	}
	for _, name := range deployments {
		if !has("Deployment", name) {
			t.Errorf("the chart makes no Deployment %s", name)
		}
	}
	for _, name := range accounts {
		if !has("ServiceAccount", name) {
			t.Errorf("the chart makes no ServiceAccount %s", name)
		}
	}
	for kind, names := range map[string][]string{
		"ConfigMap": {configMap, rootsMap}, "Secret": {issuerSecret, natsSecret, busCA, hooks[0].secret}, "StatefulSet": {nats}, "ServiceAccount": {"linkerd-heartbeat"},
	} {
		for _, name := range names {
			if !has(kind, name) {
				t.Errorf("the chart makes no %s %s", kind, name)
			}
		}
	}
	plugin, err := charts.Render(charts.CNI, nil, charts.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for kind, name := range map[string]string{
		"ConfigMap": cniConfig, "ClusterRole": cniName, "ClusterRoleBinding": cniName, "ServiceAccount": cniName, "DaemonSet": cniName,
	} {
		if !slices.ContainsFunc(plugin, func(m charts.Manifest) bool { return m.Kind == kind && m.Name == name }) {
			t.Errorf("the CNI plugin's chart makes no %s %s", kind, name)
		}
	}
	for _, h := range hooks {
		kind := "ValidatingWebhookConfiguration"
		if h.gvr == kube.MutatingWebhooks {
			kind = "MutatingWebhookConfiguration"
		}
		if !has(kind, h.config) || !has("Secret", h.secret) || !has("Service", h.host) {
			t.Errorf("the chart does not make all of %s, %s and %s", h.config, h.secret, h.host)
		}
	}
}
