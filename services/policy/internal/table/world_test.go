package table

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/allow"
)

// object is one row of a random cluster.
type object struct {
	table busv1.Table
	key   string
	row   proto.Message
}

func (o object) put() bus.Change {
	return bus.Change{Table: o.table, Key: o.key, Value: bus.Encode(o.row)}
}

func (o object) removed() bus.Change { return bus.Change{Table: o.table, Key: o.key} }

func denying(t testing.TB) derive.Cluster {
	t.Helper()
	networks, err := derive.ParseNetworks([]string{"10.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	return derive.Cluster{
		Networks: networks, IdentityDomain: "cluster.local", Domain: "cluster.local",
		ControlPlaneNamespace: "linkerd", DefaultPolicy: derive.Deny,
	}
}

var (
	namespaces = []string{"a", "b"}
	ports      = []uint16{80, 81, 82}
	workloads  = []derive.Workload{
		{Namespace: "a", Name: "p0"},
		{Namespace: "a", Name: "p1"},
		{Namespace: "b", Name: "p0"},
		{Namespace: "b", Name: "x", External: true},
	}
)

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// randomWorld makes a small cluster in which much refers to much, and some
// references lead nowhere.
func randomWorld(r *rand.Rand) []object {
	var out []object
	for i, w := range workloads {
		tpl := bus.Key(w.Namespace, fmt.Sprintf("t%d", i))
		out = append(out, object{busv1.Table_TABLE_TEMPLATES, tpl, &busv1.Template{
			Namespace: w.Namespace, ControlPlaneNamespace: "linkerd",
			Labels: map[string]string{"app": pick(r, "x", "y")},
			Ports:  []*busv1.Port{{Name: "web", Port: 80}, {Name: "web", Port: 81}, {Name: "dns", Port: 82, Protocol: "UDP"}},
		}})
		kind := busv1.Workload_KIND_POD
		if w.External {
			kind = busv1.Workload_KIND_EXTERNAL
		}
		row := &busv1.Workload{Kind: kind, Namespace: w.Namespace, Name: w.Name, Uid: fmt.Sprint(i), Template: tpl}
		if r.IntN(3) == 0 {
			row.Labels = map[string]string{"app": "z", "index": "0"}
		}
		out = append(out, object{busv1.Table_TABLE_WORKLOADS, workloadKey(w), row})
	}
	for _, ns := range namespaces {
		for i := range 3 {
			name := fmt.Sprintf("s%d", i)
			s := &busv1.Server{
				Namespace: ns, Name: name, CreatedAt: int64(r.IntN(3)), AccessPolicy: pick(r, "", "deny", "deny", "all-authenticated", "typo"),
				ProxyProtocol: pick(r, "", "unknown", "HTTP/1", "HTTP/2", "gRPC", "gRPC", "opaque"),
				Labels:        map[string]string{"tier": pick(r, "front", "back")},
			}
			if r.IntN(2) == 0 {
				s.Port = uint32(pick(r, ports...))
			} else {
				s.PortName = pick(r, "web", "dns")
			}
			selector := pick(r, &busv1.Selector{}, &busv1.Selector{MatchLabels: map[string]string{"app": "x"}},
				&busv1.Selector{Requirements: []*busv1.Requirement{{Key: "app", Operator: pick(r, "In", "NotIn"), Values: []string{"y", "z"}}}})
			if r.IntN(4) == 0 {
				s.ExternalWorkloads = selector
			} else {
				s.Pods = selector
			}
			out = append(out, object{busv1.Table_TABLE_SERVERS, bus.Key(ns, name), s})
		}
		routes := randomRoutes(r, ns)
		out = append(out, routes...)
		for i := range 6 {
			name := fmt.Sprintf("p%d", i)
			p := &busv1.AuthorizationPolicy{Namespace: ns, Name: name, Target: pick(r,
				&busv1.Ref{Group: "policy.linkerd.io", Kind: "Server", Name: pick(r, "s0", "s1", "s2")},
				&busv1.Ref{Group: "policy.linkerd.io", Kind: "Server", Name: pick(r, "s0", "s1", "s2")},
				&busv1.Ref{Kind: "Namespace", Name: pick(r, namespaces...)},
				refTo(pick(r, routes...)), refTo(pick(r, routes...)), randomRouteRef(r))}
			for range r.IntN(3) {
				ref := &busv1.Ref{
					Group: "policy.linkerd.io", Kind: pick(r, "MeshTLSAuthentication", "NetworkAuthentication"),
					Name: pick(r, "a0", "a1", "ghost"), Namespace: pick(r, "", "a", "b"),
				}
				if r.IntN(4) == 0 {
					ref = &busv1.Ref{Kind: "ServiceAccount", Name: "amy"}
				}
				p.Authentications = append(p.Authentications, ref)
			}
			out = append(out, object{busv1.Table_TABLE_AUTHORIZATION_POLICIES, bus.Key(ns, name), p})
		}
		out = append(out, randomAuthorizations(r, ns)...)
		for i := range 2 {
			name := fmt.Sprintf("a%d", i)
			out = append(out, object{busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS, bus.Key(ns, name), &busv1.MeshTLSAuthentication{
				Namespace: ns, Name: name, Identities: pick(r, []string{"one." + ns}, []string{"*"}, nil),
			}}, object{busv1.Table_TABLE_NETWORK_AUTHENTICATIONS, bus.Key(ns, name), &busv1.NetworkAuthentication{
				Namespace: ns, Name: name, Networks: []*busv1.Network{{Cidr: pick(r, "10.0.0.0/8", "192.0.2.0/24", "ten")}},
			}})
		}
	}
	return out
}

// model is the cluster as its objects say, read in the plainest way. It shares
// no code with what it judges.
type model struct{ objects []object }

func (m model) row(table busv1.Table, key string) proto.Message {
	for _, o := range m.objects {
		if o.table == table && o.key == key {
			return o.row
		}
	}
	return nil
}

// servers lists the Servers that match a port, the one that wins first.
func (m model) servers(w derive.Workload, port uint16) []*busv1.Server {
	row := m.row(busv1.Table_TABLE_WORKLOADS, workloadKey(w)).(*busv1.Workload)
	tpl := m.row(busv1.Table_TABLE_TEMPLATES, row.GetTemplate()).(*busv1.Template)
	label := tpl.GetLabels()["app"]
	if own, ok := row.GetLabels()["app"]; ok {
		label = own
	}
	var out []*busv1.Server
	for _, o := range m.objects {
		s, ok := o.row.(*busv1.Server)
		if !ok || s.GetNamespace() != w.Namespace {
			continue
		}
		selector := s.GetPods()
		if w.External {
			selector = s.GetExternalWorkloads()
		}
		named := s.GetPortName() == "web" && (port == 80 || port == 81)
		if selector == nil || s.GetPort() != uint32(port) && !named {
			continue
		}
		if want, ok := selector.GetMatchLabels()["app"]; ok && want != label {
			continue
		}
		if r := selector.GetRequirements(); len(r) > 0 && slices.Contains(r[0].GetValues(), label) != (r[0].GetOperator() == "In") {
			continue
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(x, y *busv1.Server) int {
		age := func(s *busv1.Server) string {
			if s.GetCreatedAt() == 0 {
				return "last"
			}
			return fmt.Sprint(s.GetCreatedAt())
		}
		return strings.Compare(age(x)+x.GetName(), age(y)+y.GetName())
	})
	return out
}

// grants lists what the objects allow on one Server.
func (m model) grants(s *busv1.Server) []string {
	var out []string
	for _, o := range m.objects {
		p, ok := o.row.(*busv1.AuthorizationPolicy)
		if !ok || p.GetNamespace() != s.GetNamespace() {
			continue
		}
		t := p.GetTarget()
		if t.GetKind() == "Server" && t.GetName() != s.GetName() || t.GetKind() == "Namespace" && t.GetName() != s.GetNamespace() || strings.HasSuffix(t.GetKind(), "Route") {
			continue
		}
		who, nets, good := "anybody", "everywhere", true
		for _, ref := range p.GetAuthentications() {
			ns := ref.GetNamespace()
			if ns == "" {
				ns = p.GetNamespace()
			}
			switch ref.GetKind() {
			case "ServiceAccount":
				good = good && who == "anybody"
				who = "amy." + ns + ".serviceaccount.identity.linkerd.cluster.local"
			case "MeshTLSAuthentication":
				a, ok := m.row(busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS, bus.Key(ns, ref.GetName())).(*busv1.MeshTLSAuthentication)
				good = good && ok && who == "anybody" && len(a.GetIdentities()) > 0
				who = strings.Join(a.GetIdentities(), " ")
			case "NetworkAuthentication":
				a, ok := m.row(busv1.Table_TABLE_NETWORK_AUTHENTICATIONS, bus.Key(ns, ref.GetName())).(*busv1.NetworkAuthentication)
				good = good && ok && nets == "everywhere" && a.GetNetworks()[0].GetCidr() != "ten"
				if ok {
					nets = a.GetNetworks()[0].GetCidr()
				}
			}
		}
		if good {
			out = append(out, p.GetName()+": "+who+" from "+nets)
		}
	}
	out = append(out, m.serverGrants(s)...)
	slices.Sort(out)
	if s.GetAccessPolicy() == "all-authenticated" {
		out = append(out, "all-authenticated: * from everywhere")
	}
	return out
}

// shown writes an answer's authorizations in the model's words.
func shown(s *inbound.Server) []string {
	var out []string
	for _, a := range s.GetAuthorizations() {
		who := "anybody"
		if tls := a.GetAuthentication().GetMeshTLS(); tls != nil {
			var ids []string
			for _, id := range tls.GetIdentities().GetIdentities() {
				ids = append(ids, id.GetName())
			}
			for _, suffix := range tls.GetIdentities().GetSuffixes() {
				ids = append(ids, strings.Join(append([]string{"*"}, suffix.GetParts()...), "."))
			}
			who = strings.Join(ids, " ")
			if tls.GetUnauthenticated() != nil {
				who = "tls"
			}
		}
		var nets []string
		for _, n := range a.GetNetworks() {
			ip := n.GetNet().GetIp()
			nets = append(nets, fmt.Sprintf("%08x/%d", ip.GetIpv4(), n.GetNet().GetPrefixLen()))
		}
		names := map[string]string{
			"00000000/0 00000000/0": "everywhere", "0a000000/8": "10.0.0.0/8", "c0000200/24": "192.0.2.0/24",
		}
		out = append(out, a.GetLabels()["name"]+": "+who+" from "+names[strings.Join(nets, " ")])
	}
	return out
}

// ask makes the answer as the server does; nil if nothing is known yet.
func ask(t testing.TB, tables *Tables, w derive.Workload, port uint16) *inbound.Server {
	t.Helper()
	s, err := tables.Workload(w)
	if err != nil {
		t.Fatal(err)
	}
	if s.Workload == nil || s.Template == nil {
		return nil
	}
	return allow.Answer(tables.cluster, allow.Input{Workload: s.Workload, Template: s.Template, Policies: s.Scope.Policies}, port)
}
