package serve

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	pb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
)

// TestConsumersSeeTheirOwn gives each namespace its routes, and shares an answer
// among all that have none.
func TestConsumersSeeTheirOwn(t *testing.T) {
	r := start(t, Config{}, service("plum", 80, "10.96.0.1"),
		routeRow("HTTPRoute", "grove", "made-here", to("plum", 80)),
		routeRow("HTTPRoute", "market", "bought", to("plum", 80)))
	want := map[string]string{"grove": "made-here", "market": "made-here bought", "harbour": "made-here", "hills": "made-here"}
	streams := map[string]grpc.ServerStreamingClient[pb.OutboundPolicy]{}
	for ns, routes := range want {
		streams[ns] = r.watch(t, from(ns, byAddr("10.96.0.1:80")))
		if got := routeNames(recv(t, streams[ns])); got != routes {
			t.Errorf("%s sees %q, want %q", ns, got, routes)
		}
	}
	if n := value(t, r.registry, "weft_policy_answers_derived_total", apiOutbound); n != 2 {
		t.Errorf("%v answers were made, want 2", n)
	}
	r.apply(routeRow("HTTPRoute", "market", "another", to("plum", 80)))
	if got := routeNames(recv(t, streams["market"])); got != "made-here another bought" {
		t.Errorf("market sees %q", got)
	}
	// Nobody else has heard of it: what comes next for them is this.
	r.apply(removed(routeRow("HTTPRoute", "grove", "made-here")))
	for ns, routes := range map[string]string{"grove": "http", "harbour": "http", "market": "another bought"} {
		if got := routeNames(recv(t, streams[ns])); got != routes {
			t.Errorf("%s sees %q, want %q", ns, got, routes)
		}
	}
}

// TestWaysOut ends the streams of those for whom a way out of the cluster comes,
// goes or changes, and nobody else's.
func TestWaysOut(t *testing.T) {
	outside := network("grove", "outside", "Allow")
	for _, tc := range []struct {
		name   string
		before []bus.Change
		change bus.Change
		ends   bool
		want   string // after it
	}{
		{"the first one comes", nil, outside, true, "http-egress-allow"},
		{"the first global one comes", nil, network("linkerd-egress", "all", "Deny"), true, "http-egress-deny"},
		{"one of others comes", nil, network("market", "theirs", "Deny"), false, "egress-fallback"},
		{"another comes", []bus.Change{outside}, network("grove", "a", "Allow"), true, "http-egress-allow"},
		{"it changes", []bus.Change{outside}, network("grove", "outside", "Deny"), true, "http-egress-deny"},
		{"it goes", []bus.Change{outside}, removed(outside), true, "egress-fallback"},
		{
			"an own one hides the global one, holding the address or not",
			[]bus.Change{network("linkerd-egress", "all", "Deny")},
			network("grove", "x", "Allow", "192.0.2.0/24"), true, "egress-fallback",
		},
		{"a closer one comes", []bus.Change{outside}, network("grove", "near", "Deny", "203.0.113.0/24"), true, "http-egress-deny"},
		{"a route comes", []bus.Change{outside}, routeRow("HTTPRoute", "grove", "gate", out("outside")), false, "gate http-egress-allow"},
		{"a Service comes to have the address", []bus.Change{outside}, service("plum", 80, "203.0.113.77"), false, "http"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := start(t, Config{}, append(tc.before, service("other", 80))...)
			spec := byAddr("203.0.113.77:80")
			s := r.watch(t, spec)
			before := routeNames(recv(t, s))
			r.apply(tc.change)
			now := before
			switch {
			case tc.ends:
				wantEnd(t, s, codes.OK)
				now = routeNames(recv(t, r.watch(t, spec)))
			case tc.want != before:
				now = routeNames(recv(t, s))
			}
			if now != tc.want {
				t.Errorf("after it the routes are %q, want %q", now, tc.want)
			}
			if !tc.ends {
				// The next thing that is heard is what follows.
				r.apply(network("linkerd-egress", "later", "Deny"))
				if tc.want != "http" {
					wantEnd(t, s, codes.OK)
				}
			}
		})
	}
}

// TestCompleteAnswer is about the API of our own.
func TestCompleteAnswer(t *testing.T) {
	rewrite := func(row *busv1.Route) {
		row.Rules[0].Filters = []*busv1.RouteFilter{{Type: "URLRewrite", Rewrite: &busv1.UrlRewrite{Hostname: "pears.example"}}}
	}
	r := start(t, Config{}, service("plum", 80, "10.96.0.1"), routeRow("HTTPRoute", "grove", "gate", to("plum", 80)))
	address := &routesv1.WatchRequest_Address{Address: &routesv1.Address{Ip: netip.MustParseAddr("10.96.0.1").AsSlice(), Port: 80}}
	s := r.watchRoutes(t, &routesv1.WatchRequest{SourceWorkload: client, Target: address})
	named := r.watchRoutes(t, &routesv1.WatchRequest{SourceWorkload: client, Target: &routesv1.WatchRequest_Authority{Authority: "plum.grove.svc:80"}})
	linkerd := r.watch(t, byAddr("10.96.0.1:80"))
	first, plain := recvRoutes(t, s), recv(t, linkerd)
	if diff := cmp.Diff(plain, policyOf(t, first), protocmp.Transform()); diff != "" || len(first.GetExtensions()) != 0 {
		t.Errorf("with nothing to add the answers differ (-linkerd +ours):\n%s\n%v", diff, first.GetExtensions())
	}
	if diff := cmp.Diff(first, recvRoutes(t, named), protocmp.Transform()); diff != "" {
		t.Errorf("by name (-by address +by name):\n%s", diff)
	}

	r.apply(routeRow("HTTPRoute", "grove", "gate", to("plum", 80), rewrite))
	second := recvRoutes(t, s)
	if len(second.GetExtensions()) != 1 || second.GetExtensions()[0].GetFilters().GetRewrite().GetHost() != "pears.example" {
		t.Errorf("the extensions are %v", second.GetExtensions())
	}
	if rule := policyOf(t, second).GetProtocol().GetDetect().GetHttp1().GetRoutes()[0].GetRules()[0]; len(rule.GetFilters()) != 0 {
		t.Errorf("our policy holds a stand-in: %v", rule)
	}
	rule := recv(t, linkerd).GetProtocol().GetDetect().GetHttp1().GetRoutes()[0].GetRules()[0]
	if f := rule.GetFilters()[0].GetFailureInjector(); f.GetStatus() != 500 {
		t.Errorf("Linkerd's policy is silent: %v", rule)
	}
}

func TestCompleteAnswerRefusals(t *testing.T) {
	r := start(t, Config{}, service("plum", 80, "10.96.0.1"))
	at := func(ip []byte, port uint32) *routesv1.WatchRequest {
		return &routesv1.WatchRequest{SourceWorkload: client, Target: &routesv1.WatchRequest_Address{Address: &routesv1.Address{Ip: ip, Port: port}}}
	}
	for _, tc := range []struct {
		name string
		ask  *routesv1.WatchRequest
		want codes.Code
	}{
		{"nothing", &routesv1.WatchRequest{SourceWorkload: client}, codes.InvalidArgument},
		{"nobody asks", &routesv1.WatchRequest{Target: at([]byte{10, 96, 0, 1}, 80).GetTarget()}, codes.InvalidArgument},
		{"no address", at(nil, 80), codes.InvalidArgument},
		{"half an address", at([]byte{10, 96, 0}, 80), codes.InvalidArgument},
		{"no port", at([]byte{10, 96, 0, 1}, 0), codes.InvalidArgument},
		{"unknown", at([]byte{10, 1, 2, 3}, 80), codes.NotFound},
		{"no name", &routesv1.WatchRequest{SourceWorkload: client, Target: &routesv1.WatchRequest_Authority{Authority: "plum"}}, codes.NotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := &routesv1.WatchResponse{}
			if err := r.watchRoutes(t, tc.ask).RecvMsg(m); status.Code(err) != tc.want {
				t.Errorf("RecvMsg() = %v, want %v", err, tc.want)
			}
		})
	}
}

// watchRoutes is what a generated client would be.
func (r *rig) watchRoutes(t testing.TB, ask *routesv1.WatchRequest) grpc.ClientStream {
	t.Helper()
	s, err := r.conn.NewStream(r.patience, &grpc.StreamDesc{ServerStreams: true}, "/weft.routes.v1.RoutesService/Watch")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SendMsg(ask); err != nil {
		t.Fatal(err)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	return s
}

func recvRoutes(t testing.TB, s grpc.ClientStream) *routesv1.WatchResponse {
	t.Helper()
	m := &routesv1.WatchResponse{}
	if err := s.RecvMsg(m); err != nil {
		t.Fatalf("RecvMsg: %v", err)
	}
	return m
}

func policyOf(t testing.TB, m *routesv1.WatchResponse) *pb.OutboundPolicy {
	t.Helper()
	p := &pb.OutboundPolicy{}
	if err := proto.Unmarshal(m.GetPolicy(), p); err != nil {
		t.Fatal(err)
	}
	return p
}
