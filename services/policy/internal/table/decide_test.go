package table

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/why"
)

// TestDecisionsMatchTheModel asks for random clients in random clusters whether
// they come in, and compares with a model that reads the objects in the plainest
// way and shares no code with what it judges.
func TestDecisionsMatchTheModel(t *testing.T) {
	counts := map[why.Outcome]int{}
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 4))
		objects := randomWorld(r)
		tables := New(denying(t))
		tables.Apply(Cut{Complete: true})
		for _, o := range shuffled(r, objects) {
			apply(tables, o.put())
		}
		for _, w := range workloads {
			for _, port := range ports {
				if len((model{objects}).servers(w, port)) == 0 && r.IntN(10) > 0 {
					continue // all of these are alike
				}
				answer := ask(t, tables, w, port)
				for range 30 {
					c := randomClient(r)
					got, want := why.Explain(answer, c), (model{objects}).decide(w, port, c)
					counts[want]++
					if got.Outcome != want {
						t.Fatalf("seed %d, %v port %d: %+v %+v is %v, want %v\n%+v\n%v", seed, w, port, c, c.Request, got.Outcome, want, got, answer)
					}
				}
			}
		}
	}
	// A test that only ever sees closed doors shows nothing.
	for _, o := range []why.Outcome{why.Allowed, why.Denied, why.NoRoute} {
		if counts[o] < 60 {
			t.Errorf("only %d clients are %v", counts[o], o)
		}
	}
}

func randomClient(r *rand.Rand) why.Client {
	c := why.Client{
		Address: netip.MustParseAddr(pick(r, "10.1.2.3", "192.0.2.9", "203.0.113.5")),
		Identity: pick(r, "", "", "one.a", "one.b", "spiffe://root/x",
			"amy.a.serviceaccount.identity.linkerd.cluster.local", "amy.b.serviceaccount.identity.linkerd.cluster.local"),
		TLS: r.IntN(4) == 0,
	}
	if r.IntN(5) > 0 {
		c.Request = &why.Request{Method: pick(r, "GET", "POST"), Path: pick(r, "/", "/a", "/a/b", "/a/b", "/a/c", "/ab", "/c/d"), Host: "x"}
		if r.IntN(3) == 0 { // what a gRPC client might call
			c.Request.Method, c.Request.Path = "POST", "/a/b"
		}
	}
	return c
}

// decide reads the objects for one client.
func (m model) decide(w derive.Workload, port uint16, c why.Client) why.Outcome {
	servers := m.servers(w, port)
	if len(servers) == 0 {
		return why.Denied // the default of these clusters
	}
	s := servers[0]
	var own *busv1.Route
	protocol := s.GetProxyProtocol()
	switch {
	case protocol == "opaque":
	case c.Request == nil && protocol != "" && protocol != "unknown":
		return why.Denied
	case c.Request != nil:
		var found bool
		if own, found = m.route(s, c.Request); !found {
			return why.NoRoute
		}
	}
	if s.GetAccessPolicy() == "all-authenticated" && c.Identity != "" && !strings.HasPrefix(c.Identity, "spiffe:") {
		return why.Allowed
	}
	for _, z := range m.serverAuthorizations(s) {
		nets := "10.0.0.0/8"
		if len(z.GetNetworks()) > 0 {
			nets = z.GetNetworks()[0].GetCidr()
		}
		known := z.GetUnauthenticated() || z.GetUnauthenticatedTls() && (c.TLS || c.Identity != "") || anyOf(accounts(z), c.Identity)
		if known && netip.MustParsePrefix(nets).Contains(c.Address) {
			return why.Allowed
		}
	}
	for _, o := range m.objects {
		p, ok := o.row.(*busv1.AuthorizationPolicy)
		if !ok || p.GetNamespace() != s.GetNamespace() {
			continue
		}
		t := p.GetTarget()
		meant := t.GetKind() == "Server" && t.GetName() == s.GetName() ||
			t.GetKind() == "Namespace" && t.GetName() == s.GetNamespace() ||
			own != nil && t.GetGroup() == own.GetGroup() && t.GetKind() == own.GetKind() && t.GetName() == own.GetName()
		if meant && m.admits(p, c) {
			return why.Allowed
		}
	}
	return why.Denied
}

// admits says whether one AuthorizationPolicy holds for a client.
func (m model) admits(p *busv1.AuthorizationPolicy, c why.Client) bool {
	identities, networks := 0, 0
	good := true
	for _, ref := range p.GetAuthentications() {
		ns := ref.GetNamespace()
		if ns == "" {
			ns = p.GetNamespace()
		}
		switch ref.GetKind() {
		case "ServiceAccount":
			identities++
			good = good && c.Identity == "amy."+ns+".serviceaccount.identity.linkerd.cluster.local"
		case "MeshTLSAuthentication":
			identities++
			a, ok := m.row(busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS, ns+"/"+ref.GetName()).(*busv1.MeshTLSAuthentication)
			good = good && ok && anyOf(a.GetIdentities(), c.Identity)
		case "NetworkAuthentication":
			networks++
			a, ok := m.row(busv1.Table_TABLE_NETWORK_AUTHENTICATIONS, ns+"/"+ref.GetName()).(*busv1.NetworkAuthentication)
			if !ok || a.GetNetworks()[0].GetCidr() == "ten" {
				return false
			}
			good = good && netip.MustParsePrefix(a.GetNetworks()[0].GetCidr()).Contains(c.Address)
		}
	}
	return good && identities < 2 && networks < 2
}

func anyOf(list []string, identity string) bool {
	return identity != "" && (slices.Contains(list, identity) || slices.Contains(list, "*") && !strings.HasPrefix(identity, "spiffe:"))
}

// route finds the route that takes a request; found with nil for the default one.
func (m model) route(s *busv1.Server, r *why.Request) (own *busv1.Route, found bool) {
	kind := "HTTPRoute"
	if s.GetProxyProtocol() == "gRPC" {
		kind = "GRPCRoute"
	}
	var attached []*busv1.Route
	for _, o := range m.objects {
		if row, ok := o.row.(*busv1.Route); ok && row.GetKind() == kind && attaches(row, s) && sound(row) {
			attached = append(attached, row)
		}
	}
	if len(attached) == 0 {
		return nil, kind == "HTTPRoute" || r.Method == "POST"
	}
	slices.SortFunc(attached, func(x, y *busv1.Route) int {
		age := func(r *busv1.Route) string {
			if r.GetCreatedAt() == 0 {
				return "last"
			}
			return string(rune('0' + r.GetCreatedAt()))
		}
		return strings.Compare(age(x)+x.GetName(), age(y)+y.GetName())
	})
	best := -1
	for _, row := range attached {
		for _, rule := range row.GetRules() {
			matches := rule.GetMatches()
			if len(matches) == 0 {
				matches = []*busv1.RouteMatch{{}}
			}
			for _, one := range matches {
				if n := worth(kind, one, r); n > best {
					best, own, found = n, row, true
				}
			}
		}
	}
	return own, found
}

func attaches(row *busv1.Route, s *busv1.Server) bool {
	return row.GetNamespace() == s.GetNamespace() && slices.ContainsFunc(row.GetParents(), func(p *busv1.ParentRef) bool {
		return p.GetKind() == "Server" && p.GetName() == s.GetName() && p.GetPort() == 0 &&
			(p.GetNamespace() == "" || p.GetNamespace() == s.GetNamespace())
	})
}

// sound says whether every match of a route can be obeyed.
func sound(row *busv1.Route) bool {
	for _, rule := range row.GetRules() {
		for _, m := range rule.GetMatches() {
			if m.GetPath().GetValue() == "x" || m.GetGrpc().GetType() == "RegularExpression" {
				return false
			}
		}
	}
	return true
}

// worth says how well a match fits a request; -1 if it does not.
func worth(kind string, m *busv1.RouteMatch, r *why.Request) int {
	if kind == "GRPCRoute" {
		service, method, _ := strings.Cut(r.Path[1:], "/")
		g := m.GetGrpc()
		if r.Method != "POST" || g.GetService() != "" && g.GetService() != service || g.GetMethod() != "" && g.GetMethod() != method {
			return -1
		}
		return 100*len(g.GetService()) + 10*len(g.GetMethod())
	}
	if m.GetMethod() != "" && m.GetMethod() != r.Method {
		return -1
	}
	n := len(m.GetMethod()) / 3 // one for any method
	switch p := m.GetPath(); {
	case p == nil:
	case p.GetType() == "Exact":
		if p.GetValue() != r.Path {
			return -1
		}
		n += 1000
	default:
		prefix := strings.TrimRight(p.GetValue(), "/")
		if r.Path != prefix && !strings.HasPrefix(r.Path, prefix+"/") {
			return -1
		}
		n += 10 * max(1, len(prefix))
	}
	return n
}
