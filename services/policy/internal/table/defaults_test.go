package table

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/why"
)

// yard is one namespace with a pod, or an ExternalWorkload, and one port, said in
// the words of people: what the other random clusters (world_test.go) do not have.
// The model of it is below; neither knows the code that it judges.
type yard struct {
	external          bool
	cluster, pod      string // default policies; pod may be nonsense or empty
	identified        bool   // the port needs an identity by annotation
	opaque            bool   // so the annotation says
	probed, probeNets bool
	server            *busv1.Server
	grants            []grant
	routes            []*busv1.Route
}

// grant is an AuthorizationPolicy with what it refers to, or a
// ServerAuthorization.
type grant struct {
	old        bool // a ServerAuthorization
	identities []string
	refs       []*busv1.Ref
	networks   []*busv1.Network
	target     string // "", the Server, or the name of a route
}

const yardPort = 80

func randomYard(r *rand.Rand) yard {
	policies := []string{"all-unauthenticated", "all-authenticated", "cluster-unauthenticated", "cluster-authenticated", "audit", "deny"}
	y := yard{
		external: r.IntN(4) == 0, cluster: pick(r, policies...), pod: pick(r, append(policies, "", "", "typo")...),
		identified: r.IntN(3) == 0, opaque: r.IntN(4) == 0, probed: r.IntN(2) == 0, probeNets: r.IntN(4) > 0,
	}
	if r.IntN(3) == 0 {
		return y
	}
	y.server = &busv1.Server{
		Namespace: "a", Name: "s", Port: yardPort, AccessPolicy: pick(r, append(policies, "deny", "deny", "", "typo")...),
		ProxyProtocol: pick(r, "", "HTTP/1", "HTTP/2", "opaque", "TLS", "later"),
	}
	if y.external {
		y.server.ExternalWorkloads = &busv1.Selector{}
	} else {
		y.server.Pods = &busv1.Selector{}
	}
	for i := range r.IntN(3) {
		y.routes = append(y.routes, &busv1.Route{
			Group: policyGroup, Kind: "HTTPRoute", Namespace: "a", Name: fmt.Sprintf("r%d", i), CreatedAt: int64(i + 1),
			Parents:   []*busv1.ParentRef{{Group: policyGroup, Kind: "Server", Name: "s"}},
			Hostnames: pick(r, nil, nil, []string{"x"}, []string{"*.y"}),
			Rules: []*busv1.RouteRule{{Matches: []*busv1.RouteMatch{{
				Path:        &busv1.TypedValue{Type: pick(r, "PathPrefix", "Exact", "RegularExpression"), Value: pick(r, "/a", "/a/b")},
				Headers:     pick(r, nil, []*busv1.TypedValue{{Type: pick(r, "Exact", "RegularExpression"), Name: "X-Hue", Value: "red"}}),
				QueryParams: pick(r, nil, []*busv1.TypedValue{{Type: "Exact", Name: "q", Value: "1"}}),
			}}}},
		})
	}
	for range r.IntN(4) {
		g := grant{old: r.IntN(3) == 0, target: pick(r, "", "", "r0", "r1")}
		for range r.IntN(3) {
			g.identities = append(g.identities, pick(r, "*", "*.b.id", "amy.b.id", "spiffe://root/x"))
		}
		if !g.old && len(g.identities) > 0 && r.IntN(3) == 0 {
			g.refs = []*busv1.Ref{{Kind: pick(r, "ServiceAccount", "Namespace"), Name: pick(r, "a", "amy")}}
		}
		for range r.IntN(3) {
			g.networks = append(g.networks, &busv1.Network{Cidr: pick(r, "10.0.0.0/8", "192.0.2.0/24", "fd00::/8"), Except: pick(r, nil, []string{"10.1.0.0/16", "fd00:1::/32"})})
		}
		for _, n := range g.networks { // an exception lies within its network
			n.Except = slices.DeleteFunc(slices.Clone(n.Except), func(e string) bool {
				return !netip.MustParsePrefix(n.GetCidr()).Overlaps(netip.MustParsePrefix(e))
			})
		}
		y.grants = append(y.grants, g)
	}
	return y
}

// rows writes a yard down as the watcher would.
func (y yard) rows() (out []bus.Change) {
	put := func(table busv1.Table, row interface {
		GetNamespace() string
		GetName() string
	}, o object,
	) {
		o.table, o.key = table, bus.Key(row.GetNamespace(), row.GetName())
		out = append(out, o.put())
	}
	tpl := &busv1.Template{Namespace: "a", ControlPlaneNamespace: "linkerd", Annotations: map[string]string{}}
	if y.pod != "" {
		tpl.Annotations["config.linkerd.io/default-inbound-policy"] = y.pod
	}
	if y.identified {
		tpl.Annotations["config.linkerd.io/proxy-require-identity-inbound-ports"] = "79-81"
	}
	if y.opaque {
		tpl.Annotations["config.linkerd.io/opaque-ports"] = "80"
	}
	if y.probed {
		tpl.Probes = []*busv1.Probe{{Path: "/live", Port: yardPort}}
	}
	w := &busv1.Workload{Kind: busv1.Workload_KIND_POD, Namespace: "a", Name: "w", Uid: "1", Template: bus.Key("a", "t")}
	if y.external {
		w.Kind = busv1.Workload_KIND_EXTERNAL
	}
	out = append(out, object{busv1.Table_TABLE_TEMPLATES, bus.Key("a", "t"), tpl}.put(), object{busv1.Table_TABLE_WORKLOADS, workloadKey(y.workload()), w}.put())
	if y.server == nil {
		return out
	}
	put(busv1.Table_TABLE_SERVERS, y.server, object{row: y.server})
	for _, route := range y.routes {
		out = append(out, object{busv1.Table_TABLE_ROUTES, bus.Key(policyGroup, "HTTPRoute", "a", route.GetName()), route}.put())
	}
	for i, g := range y.grants {
		name := fmt.Sprintf("g%d", i)
		if g.old {
			row := &busv1.ServerAuthorization{Namespace: "a", Name: name, Server: "s", Networks: g.networks, Unauthenticated: len(g.identities) == 0}
			row.MeshTls, row.Identities = len(g.identities) > 0, g.identities
			put(busv1.Table_TABLE_SERVER_AUTHORIZATIONS, row, object{row: row})
			continue
		}
		row := &busv1.AuthorizationPolicy{Namespace: "a", Name: name, Target: &busv1.Ref{Group: policyGroup, Kind: "Server", Name: "s"}}
		if g.target != "" {
			row.Target = &busv1.Ref{Group: policyGroup, Kind: "HTTPRoute", Name: g.target}
		}
		if len(g.identities)+len(g.refs) > 0 {
			row.Authentications = append(row.Authentications, &busv1.Ref{Group: policyGroup, Kind: "MeshTLSAuthentication", Name: name})
			m := &busv1.MeshTLSAuthentication{Namespace: "a", Name: name, Identities: g.identities, IdentityRefs: g.refs}
			put(busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS, m, object{row: m})
		}
		if len(g.networks) > 0 {
			row.Authentications = append(row.Authentications, &busv1.Ref{Group: policyGroup, Kind: "NetworkAuthentication", Name: name})
			n := &busv1.NetworkAuthentication{Namespace: "a", Name: name, Networks: g.networks}
			put(busv1.Table_TABLE_NETWORK_AUTHENTICATIONS, n, object{row: n})
		}
		put(busv1.Table_TABLE_AUTHORIZATION_POLICIES, row, object{row: row})
	}
	return out
}

func (y yard) workload() derive.Workload {
	return derive.Workload{Namespace: "a", Name: "w", External: y.external}
}

// decide is the model: spec/destination-policy.md §8 and spec/proxy.md §10.3, read
// for one client.
func (y yard) decide(c why.Client) why.Outcome {
	if y.server == nil {
		policy := y.pod
		if policy == "" || policy == "typo" {
			policy = y.cluster
		}
		if y.identified {
			policy = strings.Replace(policy, "unauthenticated", "authenticated", 1)
		}
		switch {
		case !y.opaque && c.Request != nil && y.takesProbe(c): // by its own route, from the probes' networks
			return why.Allowed
		case byDefault(policy, c) || c.Address.String() == "127.0.0.1":
			return why.Allowed
		}
		return why.Denied
	}
	http := y.server.GetProxyProtocol() != "opaque" && y.server.GetProxyProtocol() != "TLS"
	detects := y.server.GetProxyProtocol() == "" || y.server.GetProxyProtocol() == "later"
	own := ""
	switch {
	case http && !detects && c.Request == nil:
		return why.Denied // only HTTP is taken
	case http && c.Request != nil && len(y.routes) > 0:
		if own = y.route(c.Request); own == "" {
			return why.NoRoute
		}
	case http && c.Request != nil && y.takesProbe(c):
		return why.Allowed
	}
	if byDefault(y.server.GetAccessPolicy(), c) || c.Address.String() == "127.0.0.1" {
		return why.Allowed
	}
	for _, g := range y.grants {
		if g.target != "" && g.target != own && !g.old {
			continue
		}
		if g.admits(c) {
			return why.Allowed
		}
	}
	return why.Denied
}

// takesProbe says whether the route of probes takes a request from where it may
// come: the probe's path by GET, or what a kubelet calls by gRPC is none here.
func (y yard) takesProbe(c why.Client) bool {
	return y.probed && y.probeNets && !y.external && c.Request.Method == "GET" && c.Request.Path == "/live" &&
		netip.MustParsePrefix("192.0.2.0/24").Contains(c.Address)
}

func byDefault(policy string, c why.Client) bool {
	inside := netip.MustParsePrefix("10.0.0.0/8").Contains(c.Address)
	known := c.Identity != "" && !strings.HasPrefix(c.Identity, "spiffe:")
	switch policy {
	case "all-unauthenticated", "audit":
		return true
	case "all-authenticated":
		return known
	case "cluster-unauthenticated":
		return inside
	case "cluster-authenticated":
		return inside && known
	}
	return false
}

func (g grant) admits(c why.Client) bool {
	in := len(g.networks) == 0 && (!g.old || netip.MustParsePrefix("10.0.0.0/8").Contains(c.Address))
	for _, n := range g.networks {
		out := false
		for _, e := range n.GetExcept() {
			out = out || netip.MustParsePrefix(e).Contains(c.Address)
		}
		in = in || !out && netip.MustParsePrefix(n.GetCidr()).Contains(c.Address)
	}
	names := slices.Clone(g.identities)
	for _, r := range g.refs {
		if r.GetKind() == "Namespace" {
			names = append(names, "*."+r.GetName()+".serviceaccount.identity.linkerd.cluster.local")
		} else {
			names = append(names, r.GetName()+".a.serviceaccount.identity.linkerd.cluster.local")
		}
	}
	if !in || len(names) == 0 {
		return in
	}
	for _, want := range names {
		suffix, wild := strings.CutPrefix(want, "*")
		switch {
		case c.Identity == "":
		case !wild && want == c.Identity:
			return true
		case wild && !strings.HasPrefix(c.Identity, "spiffe:") && strings.HasSuffix(c.Identity, suffix):
			return true
		}
	}
	return false
}

// route is the name of the route that takes a request; empty if none does.
func (y yard) route(r *why.Request) (best string) {
	score := -1
	path, query, _ := strings.Cut(r.Path, "?")
	for _, route := range y.routes { // the oldest first
		host := 0
		if h := route.GetHostnames(); len(h) > 0 {
			switch {
			case h[0] == r.Host:
				host = 2
			case strings.HasPrefix(h[0], "*") && strings.HasSuffix(r.Host, h[0][1:]):
				host = 1
			default:
				continue
			}
		}
		m := route.GetRules()[0].GetMatches()[0]
		n := 10000 * host
		switch want := m.GetPath().GetValue(); m.GetPath().GetType() {
		case "Exact":
			if path != want {
				continue
			}
			n += 1000 + 10*len(path)
		case "RegularExpression":
			if path != want { // there is nothing special in these
				continue
			}
			n += 10 * len(path)
		default:
			if path != want && !strings.HasPrefix(path, want+"/") {
				continue
			}
			n += 10 * len(want)
		}
		if h := m.GetHeaders(); len(h) > 0 {
			if !slices.Contains(r.Headers["x-hue"], "red") {
				continue
			}
			n += 2
		}
		if len(m.GetQueryParams()) > 0 {
			if query != "q=1" {
				continue
			}
			n++
		}
		if n > score {
			best, score = route.GetName(), n
		}
	}
	return best
}

// TestDefaultsMatchTheModel asks for random clients of random yards whether they
// come in.
func TestDefaultsMatchTheModel(t *testing.T) {
	counts := map[why.Outcome]int{}
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 8))
		y := randomYard(r)
		cluster := denying(t)
		cluster.DefaultPolicy = derive.DefaultPolicy(y.cluster)
		if y.probeNets {
			cluster.ProbeNetworks = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		}
		tables := New(cluster)
		tables.Apply(Cut{Changes: y.rows(), Complete: true})
		answer := ask(t, tables, y.workload(), yardPort)
		for range 20 {
			c := why.Client{
				Address: netip.MustParseAddr(pick(r, "10.1.2.3", "10.2.0.1", "192.0.2.9", "203.0.113.5", "fd00::5", "fd00:1::5", "127.0.0.1", "127.0.0.2")),
				Identity: pick(r, "", "", "amy.b.id", "x.y.b.id", "b.id", "spiffe://root/x",
					"amy.a.serviceaccount.identity.linkerd.cluster.local", "x.amy.serviceaccount.identity.linkerd.cluster.local"),
			}
			if r.IntN(5) > 0 {
				c.Request = &why.Request{
					Method: pick(r, "GET", "GET", "POST"), Path: pick(r, "/a", "/a/b", "/a/b?q=1", "/a/b/c?q=1", "/ab", "/live"),
					Host: pick(r, "x", "x.y", "z"), Headers: pick(r, nil, map[string][]string{"x-hue": {"blue", "red"}}),
				}
			}
			got, want := why.Explain(answer, c), y.decide(c)
			counts[want]++
			if got.Outcome != want {
				t.Fatalf("seed %d: %+v\n%+v %+v is %v, want %v\n%+v\n%v", seed, y, c, c.Request, got.Outcome, want, got, answer)
			}
		}
	}
	for _, o := range []why.Outcome{why.Allowed, why.Denied, why.NoRoute} {
		if counts[o] < 300 {
			t.Errorf("only %d clients are %v", counts[o], o)
		}
	}
}
