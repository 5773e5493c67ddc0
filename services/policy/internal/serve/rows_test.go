package serve

import (
	"strings"
	"testing"

	pb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// from is a question asked by a client of another namespace.
func from(namespace string, spec *pb.TrafficSpec) *pb.TrafficSpec {
	spec.SourceWorkload = namespace + ":client"
	return spec
}

// edit changes the Service of a row.
func edit(c bus.Change, by func(*busv1.Service)) bus.Change {
	row := &busv1.Service{}
	if err := proto.Unmarshal(c.Value, row); err != nil {
		panic(err)
	}
	by(row)
	c.Key, c.Value = bus.Key(row.GetNamespace(), row.GetName()), bus.Encode(row)
	return c
}

// in moves a Service to another namespace.
func in(namespace string, c bus.Change) bus.Change {
	return edit(c, func(s *busv1.Service) { s.Namespace = namespace })
}

// routeRow is a route with one rule that the options shape.
func routeRow(kind, namespace, name string, options ...func(*busv1.Route)) bus.Change {
	row := &busv1.Route{
		Group: "gateway.networking.k8s.io", Kind: kind, Namespace: namespace, Name: name, Rules: []*busv1.RouteRule{{}},
	}
	for _, o := range options {
		o(row)
	}
	return bus.Change{Table: busv1.Table_TABLE_ROUTES, Key: bus.Key(row.GetGroup(), kind, namespace, name), Value: bus.Encode(row)}
}

// to attaches a route to a Service of namespace grove.
func to(service string, port uint32) func(*busv1.Route) {
	return func(r *busv1.Route) {
		r.Parents = append(r.Parents, &busv1.ParentRef{Kind: "Service", Namespace: "grove", Name: service, Port: port})
	}
}

// out attaches a route to an egress network of its namespace.
func out(network string) func(*busv1.Route) {
	return func(r *busv1.Route) {
		r.Parents = append(r.Parents, &busv1.ParentRef{Group: "policy.linkerd.io", Kind: "EgressNetwork", Name: network})
	}
}

func backend(service string, port uint32) func(*busv1.Route) { return backendIn("", service, port) }

func backendIn(namespace, service string, port uint32) func(*busv1.Route) {
	return func(r *busv1.Route) {
		r.Rules[0].Backends = append(r.Rules[0].Backends, &busv1.BackendRef{
			Kind: "Service", Namespace: namespace, Name: service, Port: port, Weight: 1,
		})
	}
}

// grant lets HTTPRoutes of namespace grove refer to things of another namespace.
func grant(namespace string, to ...*busv1.Ref) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_REFERENCE_GRANTS, Key: bus.Key(namespace, "g"), Value: bus.Encode(&busv1.ReferenceGrant{
		Namespace: namespace, Name: "g", To: to,
		From: []*busv1.Ref{{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute", Namespace: "grove"}},
	})}
}

// network is an egress network; no CIDRs means everything outside the cluster.
func network(namespace, name, policy string, cidrs ...string) bus.Change {
	row := &busv1.EgressNetwork{Namespace: namespace, Name: name, TrafficPolicy: policy}
	for _, c := range cidrs {
		row.Networks = append(row.Networks, &busv1.Network{Cidr: c})
	}
	return bus.Change{Table: busv1.Table_TABLE_EGRESS_NETWORKS, Key: bus.Key(namespace, name), Value: bus.Encode(row)}
}

// routeNames lists the routes of an answer with detection; a default one by its
// own name.
func routeNames(p *pb.OutboundPolicy) string {
	var names []string
	for _, r := range p.GetProtocol().GetDetect().GetHttp1().GetRoutes() {
		names = append(names, r.GetMetadata().GetResource().GetName()+r.GetMetadata().GetDefault())
	}
	return strings.Join(names, " ")
}

// onlyBackend is the backend of an answer with one route of one rule.
func onlyBackend(t testing.TB, p *pb.OutboundPolicy) *pb.HttpRoute_RouteBackend {
	t.Helper()
	routes := p.GetProtocol().GetDetect().GetHttp1().GetRoutes()
	if len(routes) != 1 || len(routes[0].GetRules()) != 1 {
		t.Fatalf("not one rule: %v", p)
	}
	all := routes[0].GetRules()[0].GetBackends().GetRandomAvailable().GetBackends()
	if len(all) != 1 {
		t.Fatalf("not one backend: %v", p)
	}
	return all[0].GetBackend()
}

func path(b *pb.HttpRoute_RouteBackend) string {
	return b.GetBackend().GetBalancer().GetDiscovery().GetDst().GetPath()
}
