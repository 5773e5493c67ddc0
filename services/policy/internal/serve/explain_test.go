package serve

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
)

const explainInbound = "/weft.explain.v1.InboundService/ExplainInbound"

func TestExplainInbound(t *testing.T) {
	r := start(t, Config{}, template("plum", "linkerd"), pod("plum-0", "1", "plum"), serverRow("web", "HTTP/1"),
		policyRow("amy", "gateway.networking.k8s.io", "HTTPRoute", "gate", &busv1.Ref{Kind: "ServiceAccount", Name: "amy"}),
		policyRow("lost", "policy.linkerd.io", "Server", "web", &busv1.Ref{Group: "policy.linkerd.io", Kind: "MeshTLSAuthentication", Name: "ghost"}),
		onServer("HTTPRoute", "gate"),
		onServer("HTTPRoute", "odd", func(r *busv1.Route) { r.Rules[0].Filters = []*busv1.RouteFilter{{Type: "URLRewrite"}} }))
	ignored := []string{
		"authorization policy lost authorises nothing: mesh TLS authentication grove/ghost does not exist",
		`HTTPRoute grove/odd on Server grove/web: UnsupportedValue: spec.rules[0].filters[0].type: a filter of type "URLRewrite" is not supported here`,
	}
	ask := func() *explainv1.ExplainInboundRequest {
		return &explainv1.ExplainInboundRequest{
			Workload: "grove:plum-0", Port: 80, ClientAddress: "10.0.0.9", ClientIdentity: "amy.grove.serviceaccount.identity.linkerd.cluster.local",
			Request: &explainv1.HttpRequest{Method: "GET", Path: "/", Headers: []*explainv1.Header{{Name: "X-A", Value: "b"}}},
		}
	}
	got := &explainv1.ExplainInboundResponse{}
	if err := r.conn.Invoke(r.patience, explainInbound, ask(), got); err != nil {
		t.Fatal(err)
	}
	want := &explainv1.ExplainInboundResponse{
		Outcome: explainv1.Outcome_OUTCOME_ALLOWED, Server: "server web", Route: "HTTPRoute gate", By: "authorizationpolicy amy",
		Rules: []*explainv1.Rule{{Name: "authorizationpolicy amy", OfRoute: true}}, Ignored: ignored,
		Routes: []*explainv1.RouteReason{{Name: "HTTPRoute gate"}},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("amy (-want +got):\n%s", diff)
	}
	stranger := ask()
	stranger.ClientIdentity = ""
	got.Reset()
	if err := r.conn.Invoke(r.patience, explainInbound, stranger, got); err != nil {
		t.Fatal(err)
	}
	want.Outcome, want.By, want.Rules[0].Reason = explainv1.Outcome_OUTCOME_DENIED, "", "it asks for mesh TLS"
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("a stranger (-want +got):\n%s", diff)
	}
	for name, c := range map[string]struct {
		change func(*explainv1.ExplainInboundRequest)
		want   codes.Code
	}{
		"a workload that does not exist": {func(q *explainv1.ExplainInboundRequest) { q.Workload = "grove:ghost" }, codes.NotFound},
		"no workload":                    {func(q *explainv1.ExplainInboundRequest) { q.Workload = "" }, codes.InvalidArgument},
		"no port":                        {func(q *explainv1.ExplainInboundRequest) { q.Port = 0 }, codes.InvalidArgument},
		"no address":                     {func(q *explainv1.ExplainInboundRequest) { q.ClientAddress = "here" }, codes.InvalidArgument},
		"no path":                        {func(q *explainv1.ExplainInboundRequest) { q.Request.Path = "x" }, codes.InvalidArgument},
		"no method":                      {func(q *explainv1.ExplainInboundRequest) { q.Request.Method = "" }, codes.InvalidArgument},
	} {
		q := ask()
		c.change(q)
		if err := r.conn.Invoke(r.patience, explainInbound, q, got); status.Code(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	r = start(t, Config{})
	if err := r.conn.Invoke(r.patience, explainInbound, ask(), got); status.Code(err) != codes.Unavailable {
		t.Errorf("before the first complete state: %v", err)
	}
}
