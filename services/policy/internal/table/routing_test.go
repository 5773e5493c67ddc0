package table

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/outbound"
	"github.com/weftmesh/weft/services/policy/internal/derive/why"
)

// street is a Service of namespace a with routes of two namespaces.
type street []*busv1.Route

func randomStreet(r *rand.Rand) street {
	var out street
	for i := range 1 + r.IntN(5) {
		row := &busv1.Route{
			Group: pick(r, gatewayGroup, policyGroup), Kind: "HTTPRoute", Namespace: pick(r, "a", "a", "b"), Name: fmt.Sprintf("r%d", i),
			CreatedAt: int64(r.IntN(3)), Hostnames: pick(r, nil, nil, []string{"Web.Example"}, []string{"*.example"}, []string{"*.b.example", "web.b.example"}),
			Parents: []*busv1.ParentRef{{Kind: "Service", Namespace: "a", Name: pick(r, "web", "web", "web", "other"), Port: uint32(pick(r, 0, 80, 81, 99))}},
		}
		for range 1 + r.IntN(2) {
			rule := &busv1.RouteRule{}
			for range r.IntN(3) {
				m := &busv1.RouteMatch{Method: pick(r, "", "", "GET"), QueryParams: pick(r, nil, nil, []*busv1.TypedValue{{Name: "q", Value: "1"}})}
				m.Path = pick(r, nil,
					&busv1.TypedValue{Type: "Exact", Value: pick(r, "/a", "/a/b")}, &busv1.TypedValue{Type: "PathPrefix", Value: pick(r, "/", "/a", "/a/", "/a/b")})
				for h := range r.IntN(3) {
					m.Headers = append(m.Headers, &busv1.TypedValue{Name: fmt.Sprintf("x-%d", h), Value: "1"})
				}
				rule.Matches = append(rule.Matches, m)
			}
			row.Rules = append(row.Rules, rule)
		}
		out = append(out, row)
	}
	return out
}

// takes is the model: what the Gateway API says of who takes a request, and
// spec/destination-policy.md §9.2 of which routes a client has.
func (s street) takes(source string, port uint32, r *why.Request) string {
	type candidate struct {
		route *busv1.Route
		rank  []int // greater is better
	}
	var all []candidate
	attached := 0
	for _, row := range s {
		p := row.GetParents()[0]
		if p.GetName() != "web" || p.GetPort() != 0 && p.GetPort() != port || row.GetNamespace() != "a" && row.GetNamespace() != source {
			continue
		}
		attached++
		host := -1
		if len(row.GetHostnames()) == 0 {
			host = 0
		}
		for _, h := range row.GetHostnames() {
			h = strings.ToLower(h)
			switch {
			case h == r.Host:
				host = max(host, 1000)
			case h[0] == '*' && strings.HasSuffix(r.Host, h[1:]):
				host = max(host, len(h))
			}
		}
		if host < 0 {
			continue
		}
		for _, rule := range row.GetRules() {
			matches := rule.GetMatches()
			if len(matches) == 0 {
				matches = []*busv1.RouteMatch{{}}
			}
			for _, m := range matches {
				if rank, ok := fits(m, r); ok {
					all = append(all, candidate{row, append([]int{host}, rank...)})
				}
			}
		}
	}
	if attached == 0 {
		return "default http"
	}
	slices.SortStableFunc(all, func(x, y candidate) int {
		if c := slices.Compare(y.rank, x.rank); c != 0 {
			return c
		}
		age := func(r *busv1.Route) int64 {
			if r.GetCreatedAt() == 0 {
				return 1 << 40 // nobody knows: the youngest
			}
			return r.GetCreatedAt()
		}
		if age(x.route) != age(y.route) {
			return int(age(x.route) - age(y.route))
		}
		return strings.Compare(x.route.GetNamespace()+"/"+x.route.GetName(), y.route.GetNamespace()+"/"+y.route.GetName())
	})
	if len(all) == 0 {
		return ""
	}
	return "HTTPRoute " + all[0].route.GetNamespace() + "/" + all[0].route.GetName()
}

// fits ranks one match: exact path, length of the path, method, headers, query.
func fits(m *busv1.RouteMatch, r *why.Request) (rank []int, ok bool) {
	path, query, _ := strings.Cut(r.Path, "?")
	rank = make([]int, 5)
	switch want := m.GetPath().GetValue(); {
	case m.GetPath() == nil:
		// The definitions of both groups make it prefix /; where they are not used, as
		// with a directory of manifests, it is weaker than any path.
	case m.GetPath().GetType() == "Exact":
		rank[0], rank[1] = 1, len(want)
		if path != want {
			return nil, false
		}
	default:
		want = strings.TrimSuffix(want, "/")
		rank[1] = max(1, len(want))
		if path != want && !strings.HasPrefix(path, want+"/") {
			return nil, false
		}
	}
	if m.GetMethod() != "" {
		rank[2] = 1
		if m.GetMethod() != r.Method {
			return nil, false
		}
	}
	for _, h := range m.GetHeaders() {
		rank[3]++
		if !slices.Contains(r.Headers[h.GetName()], "1") {
			return nil, false
		}
	}
	if len(m.GetQueryParams()) > 0 {
		rank[4] = 1
		if query != "q=1" {
			return nil, false
		}
	}
	return rank, true
}

// TestRoutesMatchTheModel asks of random routes which takes a request.
func TestRoutesMatchTheModel(t *testing.T) {
	counts := map[bool]int{}
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 9))
		s := randomStreet(r)
		changes := []bus.Change{}
		for _, name := range []string{"web", "other"} {
			changes = append(changes, object{busv1.Table_TABLE_SERVICES, bus.Key("a", name), &busv1.Service{
				Namespace: "a", Name: name, ClusterIps: []string{map[string]string{"web": "10.0.0.1", "other": "10.0.0.2"}[name]},
				Ports: []*busv1.ServicePort{{Port: 80}, {Port: 81}},
			}}.put())
		}
		for _, row := range s {
			changes = append(changes, object{busv1.Table_TABLE_ROUTES, bus.Key(row.GetGroup(), row.GetKind(), row.GetNamespace(), row.GetName()), row}.put())
		}
		r.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
		tables := New(denying(t))
		tables.Apply(Cut{Complete: true})
		for _, c := range changes {
			tables.Apply(Cut{Changes: []bus.Change{c}})
		}
		web, err := tables.Service("a", "web")
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			source, port := pick(r, "a", "b", "c"), pick(r, uint16(80), 81)
			request := &why.Request{
				Method: pick(r, "GET", "POST"), Path: pick(r, "/", "/a", "/a/b", "/a/b?q=1", "/ab", "/a/b/c?q=1"), Host: pick(r, "web.example", "web.b.example", "x"),
				Headers: pick(r, nil, map[string][]string{"x-0": {"1"}}, map[string][]string{"x-0": {"2", "1"}, "x-1": {"1"}}),
			}
			answer := outbound.Answer(tables.cluster, outbound.Parent{Namespace: "a", Name: "web", Service: web.Service, Routes: web.Routes},
				outbound.Question{Port: port, Source: source, Complete: true})
			want, got := s.takes(source, uint32(port), request), why.Follow(answer.Policy, answer.Extensions, request, "")
			counts[want == ""]++
			if got.Route != want {
				t.Fatalf("seed %d, client of %s, port %d: %+v is taken by %q, want %q\n%v\n%v", seed, source, port, request, got.Route, want, s, got.Routes)
			}
		}
	}
	for none, n := range counts {
		if n < 300 {
			t.Errorf("only %d requests (none takes them: %v)", n, none)
		}
	}
}
