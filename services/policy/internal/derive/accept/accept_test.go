package accept_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/egress"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// world is a small cluster.
type world struct {
	cluster derive.Cluster
	grants  map[string][]*busv1.ReferenceGrant
}

func newWorld(t testing.TB) *world {
	t.Helper()
	networks, err := derive.ParseNetworks([]string{"10.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	return &world{cluster: derive.Cluster{Networks: networks}, grants: map[string][]*busv1.ReferenceGrant{}}
}

func (w *world) HasServer(ns, name string) bool { return ns == "grove" && name == "web" }

func (w *world) Service(ns, name string) *accept.Service {
	ports := []*busv1.ServicePort{{Name: "http", Port: 80}, {Name: "admin", Port: 81}}
	switch ns + "/" + name {
	case "grove/plum", "grove/pie", "market/pie":
		return accept.NewService(&busv1.Service{ClusterIps: []string{"10.0.0.1"}, Ports: ports})
	case "grove/headless":
		return accept.NewService(&busv1.Service{ClusterIps: []string{"None"}, Ports: ports})
	case "grove/elsewhere":
		return accept.NewService(&busv1.Service{ClusterIps: []string{"10.0.0.1"}, ExternalName: true})
	}
	return nil
}

func (w *world) Egress(ns, name string) *egress.Network {
	row := &busv1.EgressNetwork{Namespace: ns, Name: name, TrafficPolicy: "Allow"}
	switch ns + "/" + name {
	case "grove/outside", "grove/other":
	case "grove/inside":
		row.Networks = []*busv1.Network{{Cidr: "10.1.0.0/16"}}
	default:
		return nil
	}
	return egress.New(w.cluster, row)
}

func (w *world) Grants(ns string) []*busv1.ReferenceGrant { return w.grants[ns] }

func read(t testing.TB, text string) *route.Route {
	t.Helper()
	row := &busv1.Route{Group: route.GroupGateway, Kind: "HTTPRoute", Namespace: "grove", Name: "gate"}
	extra := &busv1.Route{}
	if err := prototext.Unmarshal([]byte(text), extra); err != nil {
		t.Fatal(err)
	}
	proto.Merge(row, extra)
	return route.New(row)
}

func parent(kind route.ParentKind, name string) route.Parent {
	return route.Parent{Kind: kind, Namespace: "grove", Name: name}
}

const (
	toPlum = `parents { kind: "Service" name: "plum" port: 80 } `
	toOut  = `parents { group: "policy.linkerd.io" kind: "EgressNetwork" name: "outside" } `
)

// TestOneRoute judges routes that are alone. An empty reason is Accepted.
func TestOneRoute(t *testing.T) {
	for text, want := range map[string]struct {
		parent  route.Parent
		reason  string
		message string
	}{
		`parents { group: "policy.linkerd.io" kind: "Server" name: "web" }`:                   {parent(route.Server, "web"), "", ""},
		`parents { group: "policy.linkerd.io" kind: "Server" name: "ghost" }`:                 {parent(route.Server, "ghost"), "NoMatchingParent", ""},
		`parents { group: "policy.linkerd.io" kind: "Server" name: "web" section_name: "x" }`: {parent(route.Server, "web"), "NoMatchingParent", "a Server has one port: leave port and sectionName out"},
		toPlum: {parent(route.Service, "plum"), "", ""},
		`parents { group: "core" kind: "Service" name: "plum" }`:                              {parent(route.Service, "plum"), "", ""},
		`parents { kind: "Service" name: "plum" section_name: "admin" }`:                      {parent(route.Service, "plum"), "", ""},
		`parents { kind: "Service" name: "plum" section_name: "none" }`:                       {parent(route.Service, "plum"), "NoMatchingParent", `Service grove/plum has no port named "none"`},
		`parents { kind: "Service" name: "plum" port: 82 }`:                                   {parent(route.Service, "plum"), "NoMatchingParent", "Service grove/plum has no such port 82"},
		`parents { kind: "Service" name: "plum" port: 81 section_name: "http" }`:              {parent(route.Service, "plum"), "NoMatchingParent", "Service grove/plum has no such port 81"},
		`parents { kind: "Service" name: "plum" port: 65617 }`:                                {parent(route.Service, "plum"), "NoMatchingParent", "65617 is not a port"},
		`parents { kind: "Service" name: "ghost" }`:                                           {parent(route.Service, "ghost"), "NoMatchingParent", ""},
		`parents { kind: "Service" name: "headless" }`:                                        {parent(route.Service, "headless"), "NoMatchingParent", "parent service must have a ClusterIP"},
		`parents { kind: "Service" name: "elsewhere" }`:                                       {parent(route.Service, "elsewhere"), "NoMatchingParent", "parent service must have a ClusterIP"},
		`parents { kind: "Service" name: "plum" } rules { filters { type: "ExtensionRef" } }`: {parent(route.Service, "plum"), "UnsupportedValue", `spec.rules[0].filters[0].type: a filter of type "ExtensionRef" is not supported here`},
		`kind: "TCPRoute" rules { } parents { kind: "Service" name: "plum" }`:                 {parent(route.Service, "plum"), "", ""},
		toOut: {parent(route.EgressNetwork, "outside"), "", ""},
		`parents { group: "policy.linkerd.io" kind: "EgressNetwork" name: "outside" port: 443 }`:         {parent(route.EgressNetwork, "outside"), "", ""},
		`parents { group: "policy.linkerd.io" kind: "EgressNetwork" name: "inside" }`:                    {parent(route.EgressNetwork, "inside"), "NoMatchingParent", "EgressNetwork parent has not been accepted"},
		`parents { group: "policy.linkerd.io" kind: "EgressNetwork" name: "ghost" }`:                     {parent(route.EgressNetwork, "ghost"), "NoMatchingParent", ""},
		`parents { group: "policy.linkerd.io" kind: "EgressNetwork" name: "outside" section_name: "x" }`: {parent(route.EgressNetwork, "outside"), "NoMatchingParent", "an EgressNetwork has no sections: write the port's number"},
	} {
		w := newWorld(t)
		got := accept.Routes(w.cluster, w, want.parent, []*route.Route{read(t, text)})
		if len(got) != 1 {
			t.Errorf("%s: %d verdicts", text, len(got))
			continue
		}
		c := accept.Condition{Holds: want.reason == "", Reason: want.reason, Message: want.message}
		if c.Holds {
			c.Reason = "Accepted"
		}
		if diff := cmp.Diff(c, got[0].Accepted); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	// Somebody else's parents are not ours to judge.
	if got := read(t, `parents { group: "gateway.networking.k8s.io" kind: "Gateway" name: "web" }`).Parents(); got != nil {
		t.Errorf("a Gateway is a parent of ours: %v", got)
	}
}

// TestPortByName resolves a section name to the port it stands for.
func TestPortByName(t *testing.T) {
	w := newWorld(t)
	r := read(t, `parents { kind: "Service" name: "plum" section_name: "admin" } parents { kind: "Service" name: "plum" port: 80 }`)
	got := accept.Routes(w.cluster, w, parent(route.Service, "plum"), []*route.Route{r})
	if len(got) != 2 || got[0].Port != 81 || got[1].Port != 80 {
		t.Errorf("verdicts %+v, want ports 81 and 80", got)
	}
	attached := accept.Attach(got)
	if n := len(attached.For("x", 81)); n != 1 {
		t.Errorf("port 81 has %d routes", n)
	}
	if n := len(attached.For("x", 82)); n != 0 {
		t.Errorf("port 82 has %d routes", n)
	}
}

// TestConflicts lets kinds meet on one reference: gRPC wins over HTTP, TLS and
// TCP, in every order of arrival; what is elsewhere is not in the way.
func TestConflicts(t *testing.T) {
	routes := []*route.Route{
		read(t, `kind: "TCPRoute" name: "tcp" rules { }`+toPlum),
		read(t, `kind: "TLSRoute" name: "tls" rules { }`+toPlum),
		read(t, `name: "http" `+toPlum),
		read(t, `name: "every-port" parents { kind: "Service" name: "plum" }`),
		read(t, `kind: "GRPCRoute" name: "consumer" namespace: "market" parents { kind: "Service" name: "plum" namespace: "grove" port: 80 }`),
		read(t, `kind: "HTTPRoute" name: "consumer-http" namespace: "market" parents { kind: "Service" name: "plum" namespace: "grove" port: 80 }`),
		read(t, `kind: "GRPCRoute" name: "broken" rules { filters { type: "ExtensionRef" } }`+toPlum),
	}
	want := map[string]string{
		"tcp": "RouteReasonConflicted", "tls": "RouteReasonConflicted", "http": "Accepted", "every-port": "Accepted",
		"consumer": "Accepted", "consumer-http": "RouteReasonConflicted", "broken": "UnsupportedValue",
	}
	w := newWorld(t)
	judge := func(routes []*route.Route) map[string]string {
		got := map[string]string{}
		for _, v := range accept.Routes(w.cluster, w, parent(route.Service, "plum"), routes) {
			got[v.Route.Row.GetName()] = v.Accepted.Reason
		}
		return got
	}
	for range routes {
		routes = append(routes[1:], routes[0])
		if diff := cmp.Diff(want, judge(routes)); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	slices.Reverse(routes)
	routes = append(routes, read(t, `kind: "GRPCRoute" name: "grpc" `+toPlum))
	want["http"], want["grpc"] = "RouteReasonConflicted", "Accepted"
	if diff := cmp.Diff(want, judge(routes)); diff != "" {
		t.Errorf("with a gRPC route (-want +got):\n%s", diff)
	}
	// A Server says what it speaks, so routes of two kinds are no conflict there.
	const toWeb = ` parents { group: "policy.linkerd.io" kind: "Server" name: "web" }`
	for _, v := range accept.Routes(w.cluster, w, parent(route.Server, "web"), []*route.Route{read(t, toWeb), read(t, `kind: "GRPCRoute"`+toWeb)}) {
		if !v.Accepted.Holds || v.ResolvedRefs != nil {
			t.Errorf("%v on a Server: %+v", v.Route, v)
		}
	}
}

// TestAttached shows producers' routes to everybody and consumers' to their own
// namespace, together by age.
func TestAttached(t *testing.T) {
	w := newWorld(t)
	consumer := `namespace: "market" parents { kind: "Service" name: "plum" namespace: "grove" }`
	attached := accept.Attach(accept.Routes(w.cluster, w, parent(route.Service, "plum"), []*route.Route{
		read(t, `name: "second" created_at: 2 `+toPlum), read(t, `name: "first" created_at: 1 `+consumer), read(t, `name: "third" created_at: 3 `+consumer),
		read(t, `name: "refused" parents { kind: "Service" name: "plum" port: 99 }`),
	}))
	names := func(ns string, port uint16) (out []string) {
		for _, v := range attached.For(ns, port) {
			out = append(out, v.Route.Row.GetName())
		}
		return out
	}
	for _, c := range []struct {
		ns     string
		port   uint16
		source string
		want   []string
	}{
		{"market", 80, "market", []string{"first", "second", "third"}},
		{"market", 81, "market", []string{"first", "third"}},
		{"grove", 80, "", []string{"second"}},
		{"hill", 80, "", []string{"second"}},
	} {
		if diff := cmp.Diff(c.want, names(c.ns, c.port)); diff != "" {
			t.Errorf("%s on %d (-want +got):\n%s", c.ns, c.port, diff)
		}
		if got := attached.Source(c.ns); got != c.source {
			t.Errorf("Source(%s) = %q, want %q", c.ns, got, c.source)
		}
	}
	var none *accept.Attached
	if none.Source("x") != "" || none.For("x", 80) != nil || accept.Attach(nil) != nil {
		t.Error("no routes are something")
	}
}
