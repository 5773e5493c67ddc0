package serve

import (
	"testing"

	pb "github.com/linkerd/linkerd2-proxy-api/go/outbound"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// The tests of this file are named after the rows of the list of complaints that
// peers' users have (cases/complaints.md, section D).

// TestD4FirstAnswerHasTheRoutes: what exists is in the first message, whoever asks.
func TestD4FirstAnswerHasTheRoutes(t *testing.T) {
	r := start(t, Config{}, service("plum", 80, "10.96.0.1"), routeRow("HTTPRoute", "grove", "gate", to("plum", 0)))
	s := r.watch(t, from("market", byAddr("10.96.0.1:80")))
	if got := routeNames(recv(t, s)); got != "gate" {
		t.Errorf("the first answer has %q", got)
	}
}

// TestD5BackendsOfARouteWithoutPortFollow: every shape of a route hears of its
// backends.
func TestD5BackendsOfARouteWithoutPortFollow(t *testing.T) {
	r := start(t, Config{}, service("plum", 80, "10.96.0.1"), routeRow("HTTPRoute", "grove", "gate", to("plum", 0), backend("pie", 8080)))
	s := r.watch(t, byAddr("10.96.0.1:80"))
	if b := onlyBackend(t, recv(t, s)); b.GetBackend().GetKind() != nil || len(b.GetFilters()) != 1 {
		t.Errorf("a backend that does not exist is %v", b)
	}
	r.apply(service("pie", 8080))
	if b := onlyBackend(t, recv(t, s)); b.GetBackend().GetBalancer() == nil || len(b.GetFilters()) != 0 {
		t.Errorf("the backend that has come is %v", b)
	}
	r.apply(removed(service("pie", 8080)))
	if b := onlyBackend(t, recv(t, s)); b.GetBackend().GetKind() != nil || len(b.GetFilters()) != 1 {
		t.Errorf("the backend that has gone is %v", b)
	}
}

// TestD6AppProtocolChoosesAmongRoutes: it never drops those of its own kind, and
// what nobody knows is not looked into.
func TestD6AppProtocolChoosesAmongRoutes(t *testing.T) {
	for _, app := range []string{"linkerd.io/opaque", "foo"} {
		r := start(t, Config{},
			edit(service("plum", 80, "10.96.0.1"), func(s *busv1.Service) { s.Ports[0].AppProtocol = app }),
			routeRow("TCPRoute", "grove", "gate", to("plum", 80), backend("plum", 80)))
		got := recv(t, r.watch(t, byAddr("10.96.0.1:80")))
		if o := got.GetProtocol().GetOpaque(); len(o.GetRoutes()) != 1 || o.GetRoutes()[0].GetMetadata().GetResource().GetName() != "gate" {
			t.Errorf("%s: %v", app, got.GetProtocol())
		}
	}
}

// TestD9PrefixIsReplaced: a redirect that replaces the matched prefix is told.
func TestD9PrefixIsReplaced(t *testing.T) {
	r := start(t, Config{}, service("plum", 80, "10.96.0.1"), routeRow("HTTPRoute", "grove", "gate", to("plum", 80), func(row *busv1.Route) {
		row.Rules[0].Matches = []*busv1.RouteMatch{{Path: &busv1.TypedValue{Type: "PathPrefix", Value: "/old"}}}
		row.Rules[0].Filters = []*busv1.RouteFilter{{Type: "RequestRedirect", Redirect: &busv1.Redirect{
			Status: 302, Path: &busv1.PathModifier{Type: "ReplacePrefixMatch", Value: "/new"},
		}}}
	}))
	rule := recv(t, r.watch(t, byAddr("10.96.0.1:80"))).GetProtocol().GetDetect().GetHttp1().GetRoutes()[0].GetRules()[0]
	if len(rule.GetFilters()) != 1 || rule.GetFilters()[0].GetRedirect().GetPath().GetPrefix() != "/new" || rule.GetMatches()[0].GetPath().GetPrefix() != "/old" {
		t.Errorf("the rule is %v", rule)
	}
}

// TestD10HostsHaveNoCase: they are told in lower case, and each once.
func TestD10HostsHaveNoCase(t *testing.T) {
	r := start(t, Config{}, service("plum", 80, "10.96.0.1"), routeRow("HTTPRoute", "grove", "gate", to("plum", 80), func(row *busv1.Route) {
		row.Hostnames = []string{"A.b", "a.B", "*.A.b", "*.a.b", "a.b."}
	}))
	hosts := recv(t, r.watch(t, byAddr("10.96.0.1:80"))).GetProtocol().GetDetect().GetHttp1().GetRoutes()[0].GetHosts()
	if len(hosts) != 2 || hosts[0].GetExact() != "a.b" || hosts[1].GetSuffix() == nil {
		t.Errorf("the hosts are %v", hosts)
	}
}

// TestD16NothingGoesToAnotherBackend: a backend without a port fails, one whose
// port the Service does not declare is that port and nothing else.
func TestD16NothingGoesToAnotherBackend(t *testing.T) {
	r := start(t, Config{}, service("plum", 80, "10.96.0.1"), service("pie", 8080),
		routeRow("HTTPRoute", "grove", "undeclared", to("plum", 80), backend("pie", 9999)))
	s := r.watch(t, byAddr("10.96.0.1:80"))
	if b := onlyBackend(t, recv(t, s)); path(b) != "pie.grove.svc.cluster.local:9999" {
		t.Errorf("the backend is %v", b)
	}
	r.apply(routeRow("HTTPRoute", "grove", "undeclared", to("plum", 80), backend("pie", 0)))
	b := onlyBackend(t, recv(t, s))
	if b.GetBackend().GetKind() != nil || b.GetFilters()[0].GetFailureInjector().GetStatus() != 500 {
		t.Errorf("the backend is %v", b)
	}
}

// TestD21AnyEntryOfAGrantCounts: not only the last.
func TestD21AnyEntryOfAGrantCounts(t *testing.T) {
	r := start(t, Config{}, service("plum", 80, "10.96.0.1"), in("market", service("pie", 80)),
		grant("market", &busv1.Ref{Kind: "Service"}, &busv1.Ref{Kind: "ConfigMap"}),
		routeRow("HTTPRoute", "grove", "gate", to("plum", 80), backendIn("market", "pie", 80)))
	s := r.watch(t, byAddr("10.96.0.1:80"))
	if b := onlyBackend(t, recv(t, s)); path(b) != "pie.market.svc.cluster.local:80" {
		t.Errorf("the backend is %v", b)
	}
	r.apply(grant("market", &busv1.Ref{Kind: "Secret"}, &busv1.Ref{Kind: "ConfigMap"}))
	if b := onlyBackend(t, recv(t, s)); b.GetBackend().GetKind() != nil || b.GetFilters()[0].GetFailureInjector().GetStatus() != 500 {
		t.Errorf("without a grant the backend is %v", b)
	}
}

// TestD22OneExternalNameHarmsItself: the other backends and routes go on.
func TestD22OneExternalNameHarmsItself(t *testing.T) {
	r := start(t, Config{}, service("plum", 80, "10.96.0.1"),
		edit(service("outside", 80), func(s *busv1.Service) { s.ExternalName = true }),
		routeRow("HTTPRoute", "grove", "a", to("plum", 80), backend("outside", 80)),
		routeRow("HTTPRoute", "grove", "b", to("plum", 80), backend("plum", 80)))
	got := recv(t, r.watch(t, byAddr("10.96.0.1:80")))
	if names := routeNames(got); names != "a b" {
		t.Fatalf("the routes are %q", names)
	}
	routes := got.GetProtocol().GetDetect().GetHttp1().GetRoutes()
	first := func(i int) *pb.HttpRoute_RouteBackend {
		return routes[i].GetRules()[0].GetBackends().GetRandomAvailable().GetBackends()[0].GetBackend()
	}
	if first(0).GetBackend().GetKind() != nil || len(first(0).GetFilters()) != 1 || path(first(1)) != "plum.grove.svc.cluster.local:80" {
		t.Errorf("the backends are %v and %v", first(0), first(1))
	}
}
