package charts_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/charts"
)

// TestGatewayAPI: the definitions of the Gateway API come when asked for, and
// never under a label that has them pruned or uninstalled with the mesh.
func TestGatewayAPI(t *testing.T) {
	http := []string{"grpcroutes", "httproutes", "referencegrants"}
	for _, tt := range []struct {
		name, values string
		want         []string
	}{
		{"not asked for", "{}", nil},
		{"all", "{installGatewayAPI: true}", []string{"grpcroutes", "httproutes", "referencegrants", "tcproutes", "tlsroutes"}},
		{"some", "{enableHttpRoutes: true}", http},
		{"all but some", "{installGatewayAPI: true, enableTlsRoutes: false, enableTcpRoutes: false}", http},
		{"labels of one's own", "{enableTcpRoutes: true, commonLabels: {team: mesh}}", []string{"referencegrants", "tcproutes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(renderedWith(t, charts.CRDs, nil, charts.Options{}))
			list := renderedWith(t, charts.CRDs, values(t, tt.values), charts.Options{})
			var got []string
			for _, m := range list {
				if m.File != "templates/gateway-api.yaml" {
					continue
				}
				o := values(t, m.YAML)
				meta := o["metadata"].(map[string]any)
				name := o["spec"].(map[string]any)["names"].(map[string]any)["plural"].(string)
				got = append(got, name)
				if m.Kind != "CustomResourceDefinition" || m.Name != name+".gateway.networking.k8s.io" {
					t.Errorf("%s %s", m.Kind, m.Name)
				}
				notes := meta["annotations"].(map[string]any)
				if notes["gateway.networking.k8s.io/bundle-version"] != "v1.4.1" || notes["helm.sh/resource-policy"] != "keep" {
					t.Errorf("%s: annotations %v", name, notes)
				}
				labels, _ := meta["labels"].(map[string]any)
				if _, ours := labels["linkerd.io/control-plane-ns"]; ours {
					t.Errorf("%s: labels %v", name, labels)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, got); diff != "" || len(list) != before+len(got) {
				t.Errorf("%d objects (-want +got):\n%s", len(list)-before, diff)
			}
		})
	}
}
