package serve

import (
	"fmt"
	"strings"
	"testing"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// row is a row of namespace grove whose key is namespace and name.
func row(table busv1.Table, name string, m proto.Message) bus.Change {
	return bus.Change{Table: table, Key: bus.Key("grove", name), Value: bus.Encode(m)}
}

func policyRow(name, group, kind, target string, authentications ...*busv1.Ref) bus.Change {
	return row(busv1.Table_TABLE_AUTHORIZATION_POLICIES, name, &busv1.AuthorizationPolicy{
		Namespace: "grove", Name: name, Target: &busv1.Ref{Group: group, Kind: kind, Name: target}, Authentications: authentications,
	})
}

// onServer is a route on the Server web.
func onServer(kind, name string, change ...func(*busv1.Route)) bus.Change {
	r := &busv1.Route{
		Group: "gateway.networking.k8s.io", Kind: kind, Namespace: "grove", Name: name,
		Parents: []*busv1.ParentRef{{Group: "policy.linkerd.io", Kind: "Server", Name: "web"}}, Rules: []*busv1.RouteRule{{}},
	}
	for _, c := range change {
		c(r)
	}
	return bus.Change{Table: busv1.Table_TABLE_ROUTES, Key: bus.Key(r.GetGroup(), kind, "grove", name), Value: bus.Encode(r)}
}

// said is an answer in a line: who is let in, each route with who is let in
// there, and the rate limit.
func said(s *inbound.Server) string {
	names := func(list []*inbound.Authz) string {
		var out []string
		for _, a := range list {
			out = append(out, a.GetLabels()["name"])
		}
		return "[" + strings.Join(out, " ") + "]"
	}
	out := names(s.GetAuthorizations())
	p := s.GetProtocol()
	for _, r := range append(p.GetDetect().GetHttpRoutes(), p.GetHttp1().GetRoutes()...) {
		out += " " + r.GetMetadata().GetResource().GetName() + r.GetMetadata().GetDefault() + names(r.GetAuthorizations())
	}
	for _, r := range p.GetGrpc().GetRoutes() {
		out += " " + r.GetMetadata().GetResource().GetName() + r.GetMetadata().GetDefault() + names(r.GetAuthorizations())
	}
	if l := p.GetHttp1().GetLocalRateLimit(); l != nil {
		out += fmt.Sprintf(" %s=%d", l.GetMetadata().GetResource().GetName(), l.GetTotal().GetRequestsPerSecond())
	}
	return out
}

// TestWatchPortFollowsWhateverIsSaid changes one thing after the other.
func TestWatchPortFollowsWhateverIsSaid(t *testing.T) {
	r := start(t, Config{}, template("plum", "linkerd"), pod("plum-0", "1", "plum"), serverRow("web", "HTTP/1"))
	s := r.watchPort(t, "grove:plum-0", 80)
	if got := said(recv(t, s)); got != "[] default[]" {
		t.Fatalf("first %q", got)
	}
	saz := row(busv1.Table_TABLE_SERVER_AUTHORIZATIONS, "door", &busv1.ServerAuthorization{
		Namespace: "grove", Name: "door", Servers: &busv1.Selector{MatchLabels: map[string]string{"tier": "front"}}, Unauthenticated: true,
	})
	limit := func(target string) bus.Change {
		return row(busv1.Table_TABLE_RATE_LIMITS, "slow", &busv1.RateLimit{
			Namespace: "grove", Name: "slow", Total: 9, Target: &busv1.Ref{Group: "policy.linkerd.io", Kind: "Server", Name: target},
		})
	}
	labelled := row(busv1.Table_TABLE_SERVERS, "web", &busv1.Server{
		Namespace: "grove", Name: "web", Port: 80, Pods: &busv1.Selector{}, ProxyProtocol: "HTTP/1", Labels: map[string]string{"tier": "front"},
	})
	const gateway = "gateway.networking.k8s.io"
	for _, step := range []struct {
		change []bus.Change
		want   string
	}{
		{[]bus.Change{saz, labelled}, "[door] default[]"}, // the authorization alone selects nothing
		{[]bus.Change{limit("ghost"), onServer("HTTPRoute", "gate")}, "[door] gate[]"},
		{[]bus.Change{limit("web")}, "[door] gate[] slow=9"},
		{[]bus.Change{policyRow("amy", gateway, "HTTPRoute", "gate"), policyRow("other", "policy.linkerd.io", "HTTPRoute", "gate")}, "[door] gate[amy] slow=9"},
		{[]bus.Change{onServer("HTTPRoute", "gate", func(r *busv1.Route) { r.Parents[0].Name = "elsewhere" })}, "[door] default[] slow=9"},
		{[]bus.Change{onServer("HTTPRoute", "gate")}, "[door] gate[amy] slow=9"},
		{[]bus.Change{removed(saz)}, "[] gate[amy] slow=9"},
		{[]bus.Change{removed(limit(""))}, "[] gate[amy]"},
		{[]bus.Change{removed(onServer("HTTPRoute", "gate"))}, "[] default[]"},
	} {
		r.apply(step.change...)
		if got := said(recv(t, s)); got != step.want {
			t.Fatalf("%q, want %q", got, step.want)
		}
	}
}

// TestExternalWorkloads are asked about by a token of their own, have the named
// ports of their row, and no probe.
func TestExternalWorkloads(t *testing.T) {
	machine := bus.Change{Table: busv1.Table_TABLE_WORKLOADS, Key: bus.Key("external", "grove", "vm"), Value: bus.Encode(&busv1.Workload{
		Kind: busv1.Workload_KIND_EXTERNAL, Namespace: "grove", Name: "vm", Uid: "9", Template: bus.Key("grove", "vm"),
	})}
	template := bus.Change{Table: busv1.Table_TABLE_TEMPLATES, Key: bus.Key("grove", "vm"), Value: bus.Encode(&busv1.Template{
		Namespace: "grove", Labels: map[string]string{"app": "vm"}, Ports: []*busv1.Port{{Name: "http", Port: 80}},
	})}
	server := row(busv1.Table_TABLE_SERVERS, "web", &busv1.Server{
		Namespace: "grove", Name: "web", PortName: "http", ExternalWorkloads: &busv1.Selector{MatchLabels: map[string]string{"app": "vm"}}, ProxyProtocol: "gRPC",
	})
	r := start(t, Config{}, machine, template, server, onServer("GRPCRoute", "gate"), policyRow("door", "policy.linkerd.io", "Server", "web"))
	s := r.watchPort(t, `{"ns":"grove","external_workload":"vm"}`, 80)
	if got := said(recv(t, s)); got != "[door] gate[]" {
		t.Errorf("the workload is told %q", got)
	}
	r.apply(removed(onServer("GRPCRoute", "gate")))
	if got := said(recv(t, s)); got != "[door] default[]" {
		t.Errorf("without its route it is told %q", got)
	}
}
