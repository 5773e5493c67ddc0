package serve

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
)

// TestExplainRefusesWhatCostsTooMuch: each of the expressions is large, and on a path
// that began as they do trying all of them would take minutes. (This one does not:
// the test would wait for what it costs to spend the budget.)
func TestExplainRefusesWhatCostsTooMuch(t *testing.T) {
	hostile := func(r *busv1.Route) {
		match := &busv1.RouteMatch{Path: &busv1.TypedValue{Type: "RegularExpression", Value: `/b(?:a*){900}`}}
		r.Rules = nil
		for range 100 {
			r.Rules = append(r.Rules, &busv1.RouteRule{Matches: []*busv1.RouteMatch{match}})
		}
	}
	r := start(t, Config{}, template("plum", "linkerd"), pod("plum-0", "1", "plum"), serverRow("web", "HTTP/1"), onServer("HTTPRoute", "in", hostile),
		service("web", 80, "10.9.0.1"), onServer("HTTPRoute", "out", hostile, func(r *busv1.Route) {
			r.Parents = []*busv1.ParentRef{{Kind: "Service", Name: "web"}}
		}))
	request := &explainv1.HttpRequest{Method: "GET", Path: "/" + strings.Repeat("a", 15_000)}
	in := &explainv1.ExplainInboundRequest{Workload: "grove:plum-0", Port: 80, ClientAddress: "10.0.0.9", Request: request}
	out := &explainv1.ExplainOutboundRequest{SourceWorkload: "grove:client", Target: "web.grove.svc:80", Request: request}
	for name, err := range map[string]error{
		"inbound":  r.conn.Invoke(r.patience, explainInbound, in, &explainv1.ExplainInboundResponse{}),
		"outbound": r.conn.Invoke(r.patience, "/weft.explain.v1.OutboundService/ExplainOutbound", out, &explainv1.ExplainOutboundResponse{}),
	} {
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "shorter path") {
			t.Errorf("%s: %v; want ResourceExhausted, and what to do", name, err)
		}
	}
	got, err := ask(r.patience, t, r, &explainv1.CheckRequest{Flows: []*explainv1.Flow{
		{Direction: &explainv1.Flow_Inbound{Inbound: in}}, {Direction: &explainv1.Flow_Outbound{Outbound: out}},
	}})
	if err != nil || len(got.GetVerdicts()) != 2 {
		t.Fatalf("the check: %v, %v", got, err)
	}
	for i, v := range got.GetVerdicts() {
		if v.GetBefore().GetOutcome() != "unknown" || v.GetChanges() || !strings.Contains(v.GetBefore().GetReason(), "too long to try") {
			t.Errorf("flow %d is judged %v", i+1, v)
		}
	}
}
