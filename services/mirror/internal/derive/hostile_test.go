package derive_test

import (
	"strings"
	"testing"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
)

// TestNamesThatAreNone (complaint G13): what another cluster calls its services
// becomes part of a path here, and must not lead out of the directory.
func TestNamesThatAreNone(t *testing.T) {
	for _, c := range []struct{ namespace, name string }{
		{"x/../../../../tmp", "kiln"},
		{"..", "kiln"},
		{"", "kiln"},
		{"a\nb", "kiln"},
		{strings.Repeat("n", 60_000), "kiln"},
		{"pottery", "../kiln"},
		{"pottery", strings.Repeat("k", 60_000)},
	} {
		got, bad := derive.Mirrors(derive.Tables{Services: []*busv1.Service{{
			Namespace: c.namespace, Name: c.name, Ports: []*busv1.ServicePort{{Port: 80}},
			Labels: map[string]string{derive.LabelExported: "true"},
		}}}, derive.Link{Cluster: "east", Domain: "cluster.local"})
		if len(got) > 0 || len(bad) != 1 || len(bad[0].Reason) > 500 {
			t.Errorf("%.20q/%.20q: %d copies, problems %.300v", c.namespace, c.name, len(got), bad)
		}
	}
}
