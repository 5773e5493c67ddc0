package outbound_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	pb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/egress"
	"github.com/weftmesh/weft/services/policy/internal/derive/outbound"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// answers asks everything about a Service and an egress network to which the
// routes are attached, and wants sound answers: whatever is wrong with a route,
// a proxy must never refuse the rest because of it.
func answers(t *testing.T, service *busv1.Service, network *busv1.EgressNetwork, rows ...*busv1.Route) {
	t.Helper()
	w := world(t, service, network)
	var routes []*route.Route
	for _, row := range rows {
		routes = append(routes, route.New(row))
	}
	for _, p := range []route.Parent{
		{Kind: route.Service, Namespace: service.GetNamespace(), Name: service.GetName()},
		{Kind: route.EgressNetwork, Namespace: network.GetNamespace(), Name: network.GetName()},
	} {
		verdicts := accept.Routes(w.cluster, w, p, routes)
		for _, v := range verdicts {
			// What is accepted must be obeyed.
			if v.Accepted.Holds {
				if _, err := outbound.NewRoute(v.Route); err != nil {
					t.Fatalf("%v is accepted and cannot be obeyed: %v", v.Route, err)
				}
			}
		}
		parent := outbound.Parent{Namespace: p.Namespace, Name: p.Name, Routes: accept.Attach(verdicts)}
		if p.Kind == route.Service {
			parent.Service = outbound.NewService(w.cluster, service)
		} else {
			parent.Egress = egress.New(w.cluster, network)
		}
		for _, q := range []outbound.Question{
			{Port: 80, Source: "grove"}, {Port: 81, Source: "market"}, {Port: 80, Source: "grove", Complete: true},
		} {
			q.Address = netip.MustParseAddr("203.0.113.77")
			a := outbound.Answer(w.cluster, parent, q)
			if err := sound(a.Policy); err != nil {
				t.Fatalf("a proxy would refuse the answer: %v\n%v", err, a.Policy)
			}
			extensions(t, a)
		}
	}
}

// extensions wants every extension to name a rule of the policy, and a backend
// of that rule.
func extensions(t *testing.T, a outbound.Policy) {
	t.Helper()
	for _, e := range a.Extensions {
		if _, err := proto.Marshal(e); err != nil {
			t.Fatal(err)
		}
		n := backends(a.Policy, int(e.GetRoute()), int(e.GetRule()))
		if n < 0 {
			t.Fatalf("rule %d of route %d is not in the policy", e.GetRule(), e.GetRoute())
		}
		for _, b := range e.GetBackends() {
			if int(b.GetBackend()) >= n {
				t.Fatalf("backend %d of %d", b.GetBackend(), n)
			}
		}
		for _, m := range e.GetFilters().GetMirrors() {
			if err := proto.Unmarshal(m.GetBackend(), &pb.Backend{}); err != nil || m.GetDenominator() == 0 || m.GetNumerator() > m.GetDenominator() {
				t.Fatalf("mirror %v: %v", m, err)
			}
		}
	}
}

// backends counts those of a rule; -1 if there is no such rule.
func backends(p *pb.OutboundPolicy, i, j int) int {
	if g := p.GetProtocol().GetGrpc(); g != nil {
		if i >= len(g.GetRoutes()) || j >= len(g.GetRoutes()[i].GetRules()) {
			return -1
		}
		return len(g.GetRoutes()[i].GetRules()[j].GetBackends().GetRandomAvailable().GetBackends())
	}
	routes := p.GetProtocol().GetDetect().GetHttp1().GetRoutes()
	routes = append(routes, p.GetProtocol().GetHttp1().GetRoutes()...)
	routes = append(routes, p.GetProtocol().GetHttp2().GetRoutes()...)
	if i >= len(routes) || j >= len(routes[i].GetRules()) {
		return -1
	}
	return len(routes[i].GetRules()[j].GetBackends().GetRandomAvailable().GetBackends())
}

// FuzzRoute attaches rows of arbitrary bytes, as if the webhook were off.
func FuzzRoute(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		raw, err := proto.Marshal(anyRoute(r))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, "5xx", "http")
	}
	f.Fuzz(func(t *testing.T, raw []byte, value, app string) {
		row := &busv1.Route{}
		if proto.Unmarshal(raw, row) != nil {
			return
		}
		service := plum()
		service.Ports[0].AppProtocol = app
		for key := range annotations() {
			service.Annotations[key] = value
		}
		network := outside()
		network.Annotations = service.GetAnnotations()
		answers(t, service, network, row)
	})
}

// FuzzEgress reads networks of arbitrary bytes.
func FuzzEgress(f *testing.F) {
	raw, err := proto.Marshal(outside())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		row := &busv1.EgressNetwork{}
		if proto.Unmarshal(raw, row) != nil {
			return
		}
		c := cluster(t)
		n := egress.New(c, row)
		for _, a := range []string{"203.0.113.77", "2001:db8::1", "10.1.2.3"} {
			addr := netip.MustParseAddr(a)
			if got := egress.Select(c, []*egress.Network{n}, addr); got != nil && c.Contains(addr) {
				t.Fatalf("%v of the cluster is outside", addr)
			}
		}
		outbound.EgressProblems(c, n)
	})
}

// TestAnyRoutes attaches several routes at a time, made of good and bad parts.
func TestAnyRoutes(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 200 {
		var rows []*busv1.Route
		for range 1 + r.IntN(4) {
			rows = append(rows, anyRoute(r))
		}
		service := plum()
		service.Ports[r.IntN(2)].AppProtocol = pick(r, "", "", "http", "kubernetes.io/h2c", "foo")
		for key, values := range annotations() {
			if r.IntN(3) == 0 {
				service.Annotations[key] = pick(r, values...)
			}
		}
		answers(t, service, outside(), rows...)
	}
}

func world(t *testing.T, service *busv1.Service, network *busv1.EgressNetwork) *rows {
	t.Helper()
	return &rows{cluster: cluster(t), service: service, network: network}
}

// rows is a cluster of one Service and one egress network.
type rows struct {
	cluster derive.Cluster
	service *busv1.Service
	network *busv1.EgressNetwork
}

func (*rows) HasServer(string, string) bool { return false }

func (w *rows) Service(ns, name string) *accept.Service {
	if ns == w.service.GetNamespace() && name == w.service.GetName() {
		return accept.NewService(w.service)
	}
	return nil
}

func (w *rows) Egress(ns, name string) *egress.Network {
	if ns == w.network.GetNamespace() && name == w.network.GetName() {
		return egress.New(w.cluster, w.network)
	}
	return nil
}

func (*rows) Grants(string) []*busv1.ReferenceGrant { return nil }
