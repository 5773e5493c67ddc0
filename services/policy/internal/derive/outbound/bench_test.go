package outbound_test

import (
	"fmt"
	"testing"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/outbound"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// BenchmarkAnswer makes and encodes the answer for a Service with 50 routes of
// four rules: what one change of it costs for each namespace and port that is
// asked about.
func BenchmarkAnswer(b *testing.B) {
	var routes []*route.Route
	for i := range 50 {
		row := &busv1.Route{
			Group: "gateway.networking.k8s.io", Kind: "HTTPRoute", Namespace: "grove", Name: fmt.Sprint("r", i),
			Parents: []*busv1.ParentRef{{Kind: "Service", Name: "plum"}},
		}
		for j := range 4 {
			row.Rules = append(row.Rules, &busv1.RouteRule{
				Matches:  []*busv1.RouteMatch{{Path: &busv1.TypedValue{Type: "PathPrefix", Value: fmt.Sprintf("/%d/%d", i, j)}}},
				Backends: []*busv1.BackendRef{{Kind: "Service", Name: "plum", Port: 80, Weight: 1}, {Kind: "Service", Name: "plum", Port: 81, Weight: 1}},
			})
		}
		routes = append(routes, route.New(row))
	}
	w := &rows{service: plum(), network: outside()}
	p := route.Parent{Kind: route.Service, Namespace: "grove", Name: "plum"}
	parent := outbound.Parent{
		Namespace: "grove", Name: "plum", Service: outbound.NewService(w.cluster, w.service),
		Routes: accept.Attach(accept.Routes(w.cluster, w, p, routes)),
	}
	b.ReportAllocs()
	for b.Loop() {
		a := outbound.Answer(w.cluster, parent, outbound.Question{Port: 80, Source: "grove"})
		if _, err := derive.Seal(a.Policy); err != nil {
			b.Fatal(err)
		}
	}
}
