package serve

import (
	"testing"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// TestD1NotInMeansNotIn: and a workload without the label is not in either.
func TestD1NotInMeansNotIn(t *testing.T) {
	for label, want := range map[string]string{"prod": "deny", "dev": "web", "": "web"} {
		server := row(busv1.Table_TABLE_SERVERS, "web", &busv1.Server{Namespace: "grove", Name: "web", Port: 80, Pods: &busv1.Selector{
			Requirements: []*busv1.Requirement{{Key: "env", Operator: "NotIn", Values: []string{"prod"}}},
		}})
		tpl := &busv1.Template{Namespace: "grove", ControlPlaneNamespace: "linkerd", Labels: map[string]string{"env": label}}
		if label == "" {
			tpl.Labels = nil
		}
		r := start(t, Config{}, row(busv1.Table_TABLE_TEMPLATES, "plum", tpl), pod("plum-0", "1", "plum"), server)
		if got := recv(t, r.watchPort(t, "grove:plum-0", 80)).GetLabels()["name"]; got != want {
			t.Errorf("env=%q: %s answers, want %s", label, got, want)
		}
	}
}

// TestD12DeletedAuthenticationsEnd: one by one, and by a complete state without them.
func TestD12DeletedAuthenticationsEnd(t *testing.T) {
	ref := func(kind, name string) *busv1.Ref {
		return &busv1.Ref{Group: "policy.linkerd.io", Kind: kind, Name: name}
	}
	mesh := func(name string) bus.Change {
		return row(busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS, name, &busv1.MeshTLSAuthentication{Namespace: "grove", Name: name, Identities: []string{"*"}})
	}
	network := func(name string) bus.Change {
		return row(busv1.Table_TABLE_NETWORK_AUTHENTICATIONS, name, &busv1.NetworkAuthentication{
			Namespace: "grove", Name: name, Networks: []*busv1.Network{{Cidr: "10.0.0.0/8"}},
		})
	}
	rest := []bus.Change{template("plum", "linkerd"), pod("plum-0", "1", "plum"), serverRow("web", "HTTP/1")}
	for _, name := range []string{"a", "b"} {
		rest = append(rest,
			policyRow("mesh-"+name, "policy.linkerd.io", "Server", "web", ref("MeshTLSAuthentication", name)),
			policyRow("net-"+name, "policy.linkerd.io", "Server", "web", ref("NetworkAuthentication", name)))
	}
	all := append([]bus.Change{mesh("a"), mesh("b"), network("a"), network("b")}, rest...)
	r := start(t, Config{}, all...)
	s := r.watchPort(t, "grove:plum-0", 80)
	want := func(want string) {
		t.Helper()
		if got := said(recv(t, s)); got != want+" default[]" {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	want("[mesh-a mesh-b net-a net-b]")
	r.apply(removed(mesh("a")))
	want("[mesh-b net-a net-b]")
	r.apply(removed(network("b")))
	want("[mesh-b net-a]")
	r.restate(rest...)
	want("[]")
}

// TestD14NamedPortOfANativeSidecar: its ports are ports of the pod, by name too.
// (That the row holds them is the watcher's; pod-native-sidecar.txtar there.)
func TestD14NamedPortOfANativeSidecar(t *testing.T) {
	tpl := row(busv1.Table_TABLE_TEMPLATES, "plum", &busv1.Template{Namespace: "grove", ControlPlaneNamespace: "linkerd", Ports: []*busv1.Port{
		{Container: "linkerd-proxy", Name: "linkerd-admin", Port: 4191, Protocol: "TCP"}, {Container: "main", Name: "http", Port: 8080, Protocol: "TCP"},
	}})
	server := row(busv1.Table_TABLE_SERVERS, "admin", &busv1.Server{Namespace: "grove", Name: "admin", PortName: "linkerd-admin", Pods: &busv1.Selector{}})
	r := start(t, Config{}, tpl, pod("plum-0", "1", "plum"), server, policyRow("scrapes", "policy.linkerd.io", "Server", "admin"))
	if got := said(recv(t, r.watchPort(t, "grove:plum-0", 4191))); got != "[scrapes] default[]" {
		t.Errorf("the sidecar's port is told %q", got)
	}
	if got := said(recv(t, r.watchPort(t, "grove:plum-0", 8080))); got != "[] default[]" {
		t.Errorf("the other port is told %q", got)
	}
}

// TestD18OldScopeEnds: what a policy or a Server meant before is over when it
// means something else.
func TestD18OldScopeEnds(t *testing.T) {
	server := func(app string) bus.Change {
		s := &busv1.Server{Namespace: "grove", Name: "web", Port: 80, Pods: &busv1.Selector{}}
		if app != "" {
			s.Pods.MatchLabels = map[string]string{"app": app}
		}
		return row(busv1.Table_TABLE_SERVERS, "web", s)
	}
	r := start(t, Config{}, template("plum", "linkerd"), pod("plum-0", "1", "plum"), server(""), policyRow("door", "", "Namespace", "grove"))
	s := r.watchPort(t, "grove:plum-0", 80)
	if got := said(recv(t, s)); got != "[door] default[]" {
		t.Errorf("first %q", got)
	}
	r.apply(policyRow("door", "policy.linkerd.io", "Server", "other"))
	if got := said(recv(t, s)); got != "[] default[]" {
		t.Errorf("with the policy on another Server %q", got)
	}
	r.apply(server("fig"))
	if got := recv(t, s).GetLabels()["kind"]; got != "default" {
		t.Errorf("with the Server of other pods it answers %q", got)
	}
}

// TestD22OneBadRouteHarmsItself: five good routes and one that no proxy could obey.
func TestD22OneBadRouteHarmsItself(t *testing.T) {
	rows := []bus.Change{template("plum", "linkerd"), pod("plum-0", "1", "plum"), serverRow("web", "HTTP/1")}
	for _, name := range []string{"a", "b", "c", "e", "f"} {
		rows = append(rows, onServer("HTTPRoute", name))
	}
	rows = append(rows, onServer("HTTPRoute", "d", func(r *busv1.Route) {
		r.Rules[0].Matches = []*busv1.RouteMatch{{Path: &busv1.TypedValue{Type: "RegularExpression", Value: "("}}}
	}))
	r := start(t, Config{}, rows...)
	s := r.watchPort(t, "grove:plum-0", 80)
	if got := said(recv(t, s)); got != "[] a[] b[] c[] e[] f[]" {
		t.Errorf("told %q", got)
	}
	r.apply(onServer("HTTPRoute", "d"))
	if got := said(recv(t, s)); got != "[] a[] b[] c[] d[] e[] f[]" {
		t.Errorf("mended it is told %q", got)
	}
}
