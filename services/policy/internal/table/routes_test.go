package table

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
)

func rowOf(table busv1.Table, row proto.Message, key ...string) bus.Change {
	return bus.Change{Table: table, Key: bus.Key(key...), Value: bus.Encode(row)}
}

// routeTo is a route to backends, which are written namespace/name.
func routeTo(ns, name string, parent *busv1.ParentRef, backends ...string) bus.Change {
	row := &busv1.Route{
		Group: gatewayGroup, Kind: "HTTPRoute", Namespace: ns, Name: name, Parents: []*busv1.ParentRef{parent}, Generation: 7,
	}
	for _, b := range backends {
		to, backend, _ := strings.Cut(b, "/")
		row.Rules = append(row.Rules, &busv1.RouteRule{Backends: []*busv1.BackendRef{
			{Kind: "Service", Namespace: to, Name: backend, Port: 80, Weight: 1},
		}})
	}
	return rowOf(busv1.Table_TABLE_ROUTES, row, gatewayGroup, "HTTPRoute", ns, name)
}

func toService(name string) *busv1.ParentRef {
	return &busv1.ParentRef{Kind: "Service", Namespace: "a", Name: name}
}

func toServer(name string) *busv1.ParentRef {
	return &busv1.ParentRef{Group: policyGroup, Kind: "Server", Name: name}
}

func egressNetwork(ns, name, cidr string) bus.Change {
	return rowOf(busv1.Table_TABLE_EGRESS_NETWORKS, &busv1.EgressNetwork{
		Namespace: ns, Name: name, TrafficPolicy: "Deny", Networks: []*busv1.Network{{Cidr: cidr}},
	}, ns, name)
}

func grantTo(ns string) bus.Change {
	return rowOf(busv1.Table_TABLE_REFERENCE_GRANTS, &busv1.ReferenceGrant{
		Namespace: ns, Name: "g", From: []*busv1.Ref{{Group: gatewayGroup, Kind: "HTTPRoute", Namespace: "b"}}, To: []*busv1.Ref{{Kind: "Service"}},
	}, ns, "g")
}

// TestRoutesWakeThoseConcerned names for each change of a route, or of what one
// refers to, who must look again.
func TestRoutesWakeThoseConcerned(t *testing.T) {
	cluster := denying(t)
	cluster.EgressNamespace = "egress"
	tables := New(cluster)
	tables.Apply(Cut{Complete: true, Changes: []bus.Change{
		template("a", "t"), pod("a", "p", "1", "a/t"), template("b", "t"), pod("b", "p", "2", "b/t"),
		server("a", "s", 80), service("a", "s", 1, "10.0.0.1"), service("a", "other", 1, "10.0.0.2"),
	}})
	outside := netip.MustParseAddr("192.0.2.1")
	watches := map[string]*Watch{
		"a/p":      tables.WatchWorkload(derive.Workload{Namespace: "a", Name: "p"}),
		"b/p":      tables.WatchWorkload(derive.Workload{Namespace: "b", Name: "p"}),
		"svc":      tables.WatchService("a", "s"),
		"10.0.0.1": tables.WatchTarget(netip.MustParseAddr("10.0.0.1"), "b"),
		"10.0.0.2": tables.WatchTarget(netip.MustParseAddr("10.0.0.2"), "b"),
		"out of a": tables.WatchTarget(outside, "a"),
		"out of b": tables.WatchTarget(outside, "b"),
	}
	authorization := rowOf(busv1.Table_TABLE_SERVER_AUTHORIZATIONS, &busv1.ServerAuthorization{Namespace: "a", Name: "z"}, "a", "z")
	limit := rowOf(busv1.Table_TABLE_RATE_LIMITS, &busv1.RateLimit{Namespace: "a", Name: "l"}, "a", "l")
	for _, tc := range []struct {
		name   string
		change bus.Change
		want   string
	}{
		{"a server authorization", authorization, "a/p"},
		{"its removal", removed(authorization), "a/p"},
		{"a rate limit", limit, "a/p"},
		{"a route on a server", routeTo("a", "r", toServer("s")), "a/p"},
		{"its move to a service", routeTo("a", "r", toService("s"), "a/plum"), "a/p,svc,10.0.0.1"},
		{"a route on nothing", routeTo("a", "lost", toService("ghost")), ""},
		{"a consumer's route with a backend abroad", routeTo("b", "r", toService("s"), "c/pie"), "svc,10.0.0.1"},
		{"the backend it names", service("c", "pie", 1), "svc,10.0.0.1"},
		{"the same backend again", service("c", "pie", 1), ""},
		{"the backend nobody names", service("b", "pie", 1), ""},
		{"the first backend, in its own namespace", service("a", "plum", 1), "svc,10.0.0.1"},
		{"a grant where a backend lives", grantTo("c"), "svc,10.0.0.1"},
		{"a grant elsewhere", grantTo("a"), ""},
		{"the end of a backend", removed(service("c", "pie", 1)), "svc,10.0.0.1"},
		{"the end of a route", removed(routeTo("b", "r", toService("s"))), "svc,10.0.0.1"},
		{"the backend that nobody names any more", service("c", "pie", 1), ""},
		{"an egress network", egressNetwork("a", "n", "192.0.2.0/24"), "out of a"},
		{"a route on it", routeTo("b", "e", &busv1.ParentRef{Group: policyGroup, Kind: "EgressNetwork", Namespace: "a", Name: "n"}), "out of a"},
		{"a global egress network", egressNetwork("egress", "n", "192.0.2.0/24"), "out of a,out of b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			apply(tables, tc.change)
			for name, w := range watches {
				want := slices.Contains(strings.Split(tc.want, ","), name)
				if got := woken(w); got != want {
					t.Errorf("%s woken: %t", name, got)
				}
			}
		})
	}
}

// TestBackendThatComesLater is complaint D5, and D4: a route without a port gets
// its backend when that comes, and whoever asks first sees the route at once.
func TestBackendThatComesLater(t *testing.T) {
	tables := complete(t, routeTo("a", "r", toService("s"), "a/plum"), service("a", "s", 1, "10.0.0.1"))
	routes := func() []accept.Verdict {
		s, err := tables.Service("a", "s")
		if err != nil || s == nil {
			t.Fatalf("Service() = %v, %v", s, err)
		}
		return s.Routes.For("b", 80)
	}
	if got := routes(); len(got) != 1 || len(got[0].Unresolved) != 1 {
		t.Fatalf("before the backend: %+v", got)
	}
	plum := rowOf(busv1.Table_TABLE_SERVICES, &busv1.Service{Namespace: "a", Name: "plum", Ports: []*busv1.ServicePort{{Port: 80}}}, "a", "plum")
	apply(tables, plum)
	if got := routes(); len(got) != 1 || len(got[0].Unresolved) != 0 || !got[0].ResolvedRefs.Holds {
		t.Errorf("with the backend: %+v", got)
	}
	apply(tables, removed(plum))
	if got := routes(); len(got[0].Unresolved) != 1 {
		t.Errorf("without it again: %+v", got)
	}
}

// TestTarget finds what an address belongs to for whom.
func TestTarget(t *testing.T) {
	cluster := denying(t)
	cluster.EgressNamespace = "egress"
	tables := New(cluster)
	tables.Apply(Cut{Complete: true, Changes: []bus.Change{
		service("a", "s", 1, "10.0.0.1", "192.0.2.200"), egressNetwork("a", "mine", "192.0.2.0/25"), egressNetwork("egress", "all", "0.0.0.0/0"),
	}})
	for _, tc := range []struct{ addr, source, want string }{
		{"10.0.0.1", "a", "service s"},
		{"192.0.2.200", "b", "service s"},
		{"192.0.2.1", "a", "egress mine"},
		{"192.0.2.201", "a", "nothing"}, // its own networks shadow the global ones
		{"192.0.2.201", "b", "egress all"},
		{"::ffff:192.0.2.1", "b", "egress all"},
		{"10.9.9.9", "b", "nothing"}, // of the cluster
		{"2001:db8::1", "b", "nothing"},
	} {
		got, err := tables.Target(netip.MustParseAddr(tc.addr), tc.source)
		if err != nil {
			t.Fatal(err)
		}
		what := "nothing"
		switch {
		case got.Service != nil:
			what = "service " + got.Service.Name
		case got.Egress != nil:
			what = "egress " + got.Egress.Row.GetName()
		}
		if what != tc.want {
			t.Errorf("%s from %s: %s, want %s", tc.addr, tc.source, what, tc.want)
		}
	}
}

// TestJudged lists every object whose status people read, page by page.
func TestJudged(t *testing.T) {
	tables := New(denying(t))
	if _, _, _, err := tables.Judged("", 1); err == nil {
		t.Error("unknown is told as empty")
	}
	two := &busv1.Route{
		Group: gatewayGroup, Kind: "HTTPRoute", Namespace: "a", Name: "two", Uid: "u", Generation: 7,
		Parents: []*busv1.ParentRef{toService("ghost"), toServer("s"), {Group: "x", Kind: "Gateway", Name: "g"}, toService("s")},
	}
	tables.Apply(Cut{Complete: true, Position: Position{Epoch: 1, Seq: 9}, Changes: []bus.Change{
		service("a", "s", 1, "10.0.0.1"), server("a", "s", 80),
		rowOf(busv1.Table_TABLE_ROUTES, two, gatewayGroup, "HTTPRoute", "a", "two"),
		rowOf(busv1.Table_TABLE_ROUTES, &busv1.Route{Group: policyGroup, Kind: "HTTPRoute", Namespace: "b", Name: "orphan"}, policyGroup, "HTTPRoute", "b", "orphan"),
		egressNetwork("a", "inside", "10.1.0.0/16"), egressNetwork("b", "outside", "192.0.2.0/24"),
		rowOf(busv1.Table_TABLE_RATE_LIMITS, &busv1.RateLimit{
			Namespace: "a", Name: "l", Target: &busv1.Ref{Group: policyGroup, Kind: "Server", Name: "s"},
		}, "a", "l"),
	}})
	want := []string{
		"gateway.networking.k8s.io HTTPRoute a/two u 7: ghost NoMatchingParent, s Accepted, s Accepted",
		"policy.linkerd.io EgressNetwork a/inside  0: EgressReasonNetworkOverlap",
		"policy.linkerd.io EgressNetwork b/outside  0: Accepted",
		"policy.linkerd.io HTTPLocalRateLimitPolicy a/l  0: Accepted",
		"policy.linkerd.io HTTPRoute b/orphan  0: ",
	}
	for _, size := range []int{1, 2, 3, 5, 100} {
		var got []string
		after, pages := "", 0
		for {
			list, more, at, err := tables.Judged(after, size)
			if err != nil || at != (Position{Epoch: 1, Seq: 9}) || len(list) > size {
				t.Fatalf("Judged(%q, %d) = %d objects, %v, %v", after, size, len(list), at, err)
			}
			for _, j := range list {
				got = append(got, tell(j))
				after = j.Key
			}
			if pages++; !more || pages > 10 {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in pages of %d (-want +got):\n%s", size, diff)
		}
	}
}

func tell(j Judged) string {
	var said []string
	for _, v := range j.Parents {
		said = append(said, v.Parent.Name+" "+v.Accepted.Reason)
	}
	if j.Accepted != nil {
		said = append(said, j.Accepted.Reason)
	}
	return strings.Join([]string{j.Group, j.Kind, j.Namespace + "/" + j.Name, j.UID, string(rune('0'+j.Generation)) + ":", strings.Join(said, ", ")}, " ")
}

// TestRefusalsAreToldOnce keeps the log quiet about what has been said.
func TestRefusalsAreToldOnce(t *testing.T) {
	tables := complete(t, service("a", "s", 1))
	told := func(r Report) string { return strings.Join(r.Problems["route HTTPRoute a/r"], "; ") }
	headless := "Service a/s does not take it: NoMatchingParent parent service must have a ClusterIP"
	if got := told(apply(tables, routeTo("a", "r", toService("s")))); got != headless {
		t.Errorf("told %q", got)
	}
	for _, c := range []bus.Change{service("a", "s", 2), service("a", "s", 3, "10.0.0.1"), service("a", "s", 4, "10.0.0.1")} {
		if got := told(apply(tables, c)); got != "" {
			t.Errorf("told again %q", got)
		}
	}
	if got := told(apply(tables, removed(service("a", "s", 1)))); got != "Service a/s does not take it: NoMatchingParent " {
		t.Errorf("of the end of its parent it is told %q", got)
	}
}
