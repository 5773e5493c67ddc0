package serve

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
)

func ask(ctx context.Context, t *testing.T, r *rig, parts ...*explainv1.CheckRequest) (*explainv1.CheckResponse, error) {
	t.Helper()
	s, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, "/weft.explain.v1.CandidateService/Check")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if err := s.SendMsg(p); err != nil {
			break // RecvMsg says why
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	out := &explainv1.CheckResponse{}
	return out, s.RecvMsg(out)
}

func candidate(kind string, c bus.Change) *explainv1.Candidate {
	return &explainv1.Candidate{
		Group: "policy.linkerd.io", Kind: kind, Namespace: "grove",
		Rows: []*explainv1.Row{{Table: c.Table, Key: c.Key, Value: c.Value}},
	}
}

func comes(identity, route string) *explainv1.Flow {
	return &explainv1.Flow{Route: route, Direction: &explainv1.Flow_Inbound{Inbound: &explainv1.ExplainInboundRequest{
		Workload: "grove:plum-0", Port: 80, ClientAddress: "10.0.0.9", ClientIdentity: identity,
	}}}
}

const (
	amy = "amy.grove.serviceaccount.identity.linkerd.cluster.local"
	bob = "bob.grove.serviceaccount.identity.linkerd.cluster.local"
)

// TestCheck: a policy that lets amy in where everybody was denied changes her
// verdict and nobody else's, and the tables that answer proxies stay as they were.
func TestCheck(t *testing.T) {
	r := start(t, Config{}, template("plum", "linkerd"), pod("plum-0", "1", "plum"), serverRow("web", "opaque"))
	door := policyRow("door", "policy.linkerd.io", "Server", "web", &busv1.Ref{Kind: "ServiceAccount", Name: "amy"})
	flows := []*explainv1.Flow{comes(amy, ""), comes(bob, ""), {Direction: &explainv1.Flow_Inbound{Inbound: &explainv1.ExplainInboundRequest{
		Workload: "grove:plum-1", Port: 80,
	}}}}
	got, err := ask(r.patience, t, r,
		&explainv1.CheckRequest{Candidates: []*explainv1.Candidate{candidate("AuthorizationPolicy", door)}, Flows: flows[:1]},
		&explainv1.CheckRequest{Flows: flows[1:]})
	if err != nil {
		t.Fatal(err)
	}
	denied := &explainv1.Judgement{Outcome: "denied", By: "server web", Reason: "there is no authorization"}
	gone := &explainv1.Judgement{Outcome: "unknown", Reason: "there is no meshed workload grove:plum-1"}
	want := &explainv1.CheckResponse{Verdicts: []*explainv1.FlowVerdict{
		{Before: denied, After: &explainv1.Judgement{Outcome: "allowed", By: "authorizationpolicy door"}, Changes: true},
		{Before: denied, After: &explainv1.Judgement{
			Outcome: "denied", By: "server web", Reason: "authorizationpolicy door: " + bob + " is not among its identities",
		}},
		{Before: gone, After: gone},
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("a door for amy (-want +got):\n%s", diff)
	}
	// What was only asked about has not happened.
	if got, err = ask(r.patience, t, r, &explainv1.CheckRequest{Flows: flows[:1]}); err != nil || got.GetVerdicts()[0].GetAfter().GetOutcome() != "denied" {
		t.Errorf("afterwards: %v, %v", got, err)
	}
	// Now it does, and its end is asked about.
	r.apply(door)
	got, err = ask(r.patience, t, r, &explainv1.CheckRequest{
		Candidates: []*explainv1.Candidate{candidate("AuthorizationPolicy", removed(door))}, Flows: flows[:2],
	})
	if err != nil || !got.GetVerdicts()[0].GetChanges() || got.GetVerdicts()[1].GetChanges() {
		t.Errorf("the end of the door: %v, %v", got, err)
	}
}

// TestCheckOut: a route in a flow's way.
func TestCheckOut(t *testing.T) {
	r := start(t, Config{}, service("web", 80, "10.9.0.1"), service("new", 80, "10.9.0.2"), routeRow("HTTPRoute", "grove", "old", to("web", 80), backend("web", 80)))
	goes := func(target, route string, request *explainv1.HttpRequest) *explainv1.Flow {
		return &explainv1.Flow{Route: route, Direction: &explainv1.Flow_Outbound{Outbound: &explainv1.ExplainOutboundRequest{
			SourceWorkload: "grove:client", Target: target, Request: request,
		}}}
	}
	canary := routeRow("HTTPRoute", "grove", "canary", to("web", 80), backend("new", 80), backendIn("", "ghost", 80), func(r *busv1.Route) {
		r.Rules[0].Matches = []*busv1.RouteMatch{{Path: &busv1.TypedValue{Type: "PathPrefix", Value: "/v2"}}}
	})
	got, err := ask(r.patience, t, r, &explainv1.CheckRequest{
		Candidates: []*explainv1.Candidate{candidate("HTTPRoute", canary)},
		Flows: []*explainv1.Flow{
			goes("web.grove.svc:80", "", &explainv1.HttpRequest{Method: "GET", Path: "/v2/x"}),
			goes("10.9.0.1:80", "", &explainv1.HttpRequest{Method: "GET", Path: "/"}),
			goes("web.grove.svc", "HTTPRoute grove/old", nil),
			goes("10.9.0.9:80", "", nil),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	const parent = "Service grove/web:80"
	old := &explainv1.Judgement{Outcome: "HTTPRoute grove/old", By: parent, Reason: "100% to Service grove/web:80"}
	none := &explainv1.Judgement{Outcome: "no such target", Reason: "No such service"}
	want := []*explainv1.FlowVerdict{
		{Before: old, Changes: true, After: &explainv1.Judgement{
			Outcome: "HTTPRoute grove/canary", By: parent,
			Reason: `50% to Service grove/new:80; 50% to Service grove/ghost:80, which is of no use, failure injector {"status":500,"message":"Service not found ghost","ratio":{"numerator":1,"denominator":1}}`,
		}},
		{Before: old, After: old},
		{Before: old, After: old},
		{Before: none, After: none},
	}
	if diff := cmp.Diff(want, got.GetVerdicts(), protocmp.Transform()); diff != "" {
		t.Errorf("a canary (-want +got):\n%s", diff)
	}
	// Of whom only the route is known, nobody knows where they go without it.
	got, err = ask(r.patience, t, r, &explainv1.CheckRequest{
		Candidates: []*explainv1.Candidate{candidate("HTTPRoute", removed(routeRow("HTTPRoute", "grove", "old")))},
		Flows:      []*explainv1.Flow{goes("web.grove.svc", "HTTPRoute grove/old", nil)},
	})
	if err != nil {
		t.Fatal(err)
	}
	want = []*explainv1.FlowVerdict{{Before: old, Changes: true, After: &explainv1.Judgement{
		Outcome: "unknown", By: parent,
		Reason: "HTTPRoute grove/old is not among the routes: which of them takes its requests depends on them",
	}}}
	if diff := cmp.Diff(want, got.GetVerdicts(), protocmp.Transform()); diff != "" {
		t.Errorf("a route that goes (-want +got):\n%s", diff)
	}
}

// TestCheckKeepsAge: who changes an object does not make it younger, and a new one
// is the youngest.
func TestCheckKeepsAge(t *testing.T) {
	aged := func(name, protocol string, at int64) bus.Change {
		return bus.Change{Table: busv1.Table_TABLE_SERVERS, Key: bus.Key("grove", name), Value: bus.Encode(&busv1.Server{
			Namespace: "grove", Name: name, Port: 80, Pods: &busv1.Selector{}, ProxyProtocol: protocol, AccessPolicy: "all-unauthenticated", CreatedAt: at,
		})}
	}
	r := start(t, Config{}, template("plum", "linkerd"), pod("plum-0", "1", "plum"), aged("old", "opaque", 5), aged("young", "opaque", 7))
	for name, c := range map[string]struct {
		change bus.Change
		want   string
	}{
		"the old one again":   {aged("old", "HTTP/1", 0), "denied"},
		"the young one again": {aged("young", "HTTP/1", 0), "allowed"},
		"one that is new":     {aged("a-new", "HTTP/1", 0), "allowed"},
	} {
		got, err := ask(r.patience, t, r, &explainv1.CheckRequest{Candidates: []*explainv1.Candidate{candidate("Server", c.change)}, Flows: []*explainv1.Flow{comes("", "")}})
		if err != nil || got.GetVerdicts()[0].GetAfter().GetOutcome() != c.want { // bytes are denied where only HTTP is taken
			t.Errorf("%s: %v, %v; want %s", name, got, err, c.want)
		}
	}
}

// TestCheckSaysWhatIsWrong: what admission would refuse, what could be applied and
// would not be obeyed, and questions that make no sense.
func TestCheckSaysWhatIsWrong(t *testing.T) {
	r := start(t, Config{}, template("plum", "linkerd"), pod("plum-0", "1", "plum"), serverRow("web", "opaque"))
	bad := candidate("Server", serverRow("web", "opaque"))
	bad.Json = []byte(`{"metadata":{"name":"web"},"spec":{"podSelector":{},"port":80,"proxyProtocol":"http"}}`)
	got, err := ask(r.patience, t, r, &explainv1.CheckRequest{Candidates: []*explainv1.Candidate{candidate("Server", serverRow("web", "")), bad}, Flows: []*explainv1.Flow{comes("", "")}})
	if err != nil || len(got.GetProblems()) != 1 || got.GetProblems()[0].GetCandidate() != 1 || got.GetProblems()[0].GetWhat() != `spec.proxyProtocol is "http"` || got.GetVerdicts() != nil {
		t.Errorf("a bad protocol: %v, %v", got, err)
	}
	got, err = ask(r.patience, t, r, &explainv1.CheckRequest{Candidates: []*explainv1.Candidate{candidate("Pod", pod("plum-0", "1", "plum"))}})
	if err != nil || len(got.GetProblems()) != 1 || got.GetProblems()[0].GetWhat() != "cannot be judged" {
		t.Errorf("a pod: %v, %v", got, err)
	}
	lost := policyRow("lost", "policy.linkerd.io", "Server", "web", &busv1.Ref{Group: "policy.linkerd.io", Kind: "MeshTLSAuthentication", Name: "ghost"})
	got, err = ask(r.patience, t, r, &explainv1.CheckRequest{Candidates: []*explainv1.Candidate{candidate("AuthorizationPolicy", lost)}})
	if want := []string{"namespace grove: authorization policy lost authorises nothing: mesh TLS authentication grove/ghost does not exist"}; err != nil || !cmp.Equal(got.GetNotes(), want) {
		t.Errorf("a policy that lacks its authentication: %v, %v", got, err)
	}
	for name, flow := range map[string]*explainv1.Flow{
		"no direction": {},
		"no workload":  {Direction: &explainv1.Flow_Inbound{Inbound: &explainv1.ExplainInboundRequest{Port: 1}}},
		"no port":      {Direction: &explainv1.Flow_Inbound{Inbound: &explainv1.ExplainInboundRequest{Workload: "a:b"}}},
		"no address":   {Direction: &explainv1.Flow_Inbound{Inbound: &explainv1.ExplainInboundRequest{Workload: "a:b", Port: 1, ClientAddress: "x"}}},
		"long name":    comes(strings.Repeat("x", maxIdentity+1), ""),
		"long path": {Direction: &explainv1.Flow_Outbound{Outbound: &explainv1.ExplainOutboundRequest{
			SourceWorkload: "a:b", Target: "a.b.svc", Request: &explainv1.HttpRequest{Method: "GET", Path: "/" + strings.Repeat("x", maxRequest)},
		}}},
		"no target":  {Direction: &explainv1.Flow_Outbound{Outbound: &explainv1.ExplainOutboundRequest{SourceWorkload: "a:b", Target: "a:b:c"}}},
		"no source":  {Direction: &explainv1.Flow_Outbound{Outbound: &explainv1.ExplainOutboundRequest{Target: "a.b.svc"}}},
		"no request": {Direction: &explainv1.Flow_Outbound{Outbound: &explainv1.ExplainOutboundRequest{SourceWorkload: "a:b", Target: "a.b.svc", Request: &explainv1.HttpRequest{}}}},
	} {
		if _, err := ask(r.patience, t, r, &explainv1.CheckRequest{Flows: []*explainv1.Flow{flow}}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := &explainv1.CheckRequest{Flows: make([]*explainv1.Flow, 1000)}
	for i := range many.Flows {
		many.Flows[i] = &explainv1.Flow{}
	}
	var parts []*explainv1.CheckRequest
	for range 11 {
		parts = append(parts, many)
	}
	if _, err := ask(r.patience, t, r, parts...); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("too many flows: %v", err)
	}
	r = start(t, Config{})
	if _, err := ask(r.patience, t, r); status.Code(err) != codes.Unavailable {
		t.Errorf("before the first complete state: %v", err)
	}
}

func TestExplainOutbound(t *testing.T) {
	r := start(t, Config{}, service("web", 80, "10.9.0.1"),
		routeRow("HTTPRoute", "grove", "gate", to("web", 80), backend("web", 80), func(r *busv1.Route) { r.Hostnames = []string{"web.example"} }),
		routeRow("HTTPRoute", "grove", "odd", to("web", 81)),
		routeRow("HTTPRoute", "grove", "lame", to("web", 80), backend("ghost", 80)))
	got := &explainv1.ExplainOutboundResponse{}
	question := &explainv1.ExplainOutboundRequest{
		SourceWorkload: "grove:client", Target: "10.9.0.1:80", Request: &explainv1.HttpRequest{Method: "GET", Path: "/", Host: "Web.example"},
	}
	if err := r.conn.Invoke(r.patience, "/weft.explain.v1.OutboundService/ExplainOutbound", question, got); err != nil {
		t.Fatal(err)
	}
	want := &explainv1.ExplainOutboundResponse{
		Parent: "Service grove/web:80", Protocol: "detect", Route: "HTTPRoute grove/gate", Does: []string{"100% to Service grove/web:80"},
		Routes: []*explainv1.RouteReason{
			{Name: "HTTPRoute grove/gate"},
			{Name: "HTTPRoute grove/lame", Reason: "it fits, but HTTPRoute grove/gate fits better, or as well and comes first"},
		},
		Ignored: []string{
			"HTTPRoute grove/lame: BackendNotFound: spec.rules[0].backendRefs[0]: Service grove/ghost does not exist",
			"HTTPRoute grove/odd: NoMatchingParent: Service grove/web has no such port 81",
		},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("gate (-want +got):\n%s", diff)
	}
	question.Target = "10.200.0.1:80"
	if err := r.conn.Invoke(r.patience, "/weft.explain.v1.OutboundService/ExplainOutbound", question, got); status.Code(err) != codes.NotFound {
		t.Errorf("nobody's address: %v", err)
	}
}
