package resolve

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// A HostMatch is a name, or a suffix of one that stands for any labels before it.
type HostMatch struct {
	Exact  string // lower case, no trailing dot
	Suffix string // with its leading dot
}

// A PathKind is how a path is compared.
type PathKind uint8

// The kinds of path matches. PathAny takes every path.
const (
	PathAny PathKind = iota
	PathExact
	PathPrefix
	PathRegex
)

// A Value is compared exactly, or, with Regex, as a whole.
type Value struct {
	Name  string
	Exact string
	Regex *regexp.Regexp
}

// A Match is a set of conditions that all hold.
type Match struct {
	PathKind PathKind
	Path     string // or the gRPC service and method as /service/method
	Regex    *regexp.Regexp
	Method   string // "" is any
	Headers  []Value
	Query    []Value
	// Service and Call are how much of a gRPC service's and method's name is given:
	// they rank gRPC matches.
	Service, Call int
}

// Select returns the rule that takes the request. The order is the Gateway
// API's: the most specific host, an exact path, the longest prefix, the method,
// the number of headers, the number of query parameters, then the order given.
// (linkerd2-proxy ranks an exact path by its length only; we do as the Gateway
// API is written.)
func Select(routes []Route, host string, r *message.Request) (*Route, *Rule) {
	var bestRoute *Route
	var bestRule *Rule
	var best rank
	folded := false
	var query url.Values // parsed once, if a match asks for it
	for i := range routes {
		route := &routes[i]
		if len(route.Hosts) > 0 && !folded {
			host, folded = strings.ToLower(strings.TrimSuffix(host, ".")), true
		}
		hostRank, ok := rankHost(route.Hosts, host)
		if !ok {
			continue
		}
		for j := range route.Rules {
			got, ok := route.Rules[j].rank(r, &query)
			if !ok {
				continue
			}
			got.host = hostRank
			if bestRule == nil || got.over(best) {
				bestRoute, bestRule, best = route, &route.Rules[j], got
			}
		}
	}
	return bestRoute, bestRule
}

// rank orders matches; a greater one wins, an equal one does not.
type rank struct {
	host, kind, path, method, headers, query int
}

func (a rank) over(b rank) bool {
	for _, d := range []int{a.host - b.host, a.kind - b.kind, a.path - b.path, a.method - b.method, a.headers - b.headers, a.query - b.query} {
		if d != 0 {
			return d > 0
		}
	}
	return false
}

func rankHost(hosts []HostMatch, host string) (int, bool) {
	if len(hosts) == 0 {
		return 0, true
	}
	best, found := 0, false
	for _, h := range hosts {
		switch {
		case h.Exact != "" && h.Exact == host:
			return 1 << 20, true
		case h.Suffix != "" && len(host) > len(h.Suffix) && strings.HasSuffix(host, h.Suffix):
			best, found = max(best, len(h.Suffix)), true
		}
	}
	return best, found
}

func (r *Rule) rank(req *message.Request, query *url.Values) (rank, bool) {
	if r.Profile != nil { // of these, the first that matches counts
		return rank{}, r.Profile.Condition == nil || r.Profile.Condition.Takes(req)
	}
	if len(r.Matches) == 0 {
		return rank{}, true
	}
	var best rank
	found := false
	for i := range r.Matches {
		got, ok := r.Matches[i].rank(req, query)
		if ok && (!found || got.over(best)) {
			best, found = got, true
		}
	}
	return best, found
}

func (m *Match) rank(r *message.Request, query *url.Values) (rank, bool) {
	var got rank
	switch m.PathKind {
	case PathExact:
		if r.Path() != m.Path {
			return rank{}, false
		}
		got.kind, got.path = 2, len(m.Path)
	case PathPrefix:
		prefix := strings.TrimSuffix(m.Path, "/")
		if prefix != "" { // else it is any
			if rest, ok := strings.CutPrefix(r.Path(), prefix); !ok || rest != "" && rest[0] != '/' {
				return rank{}, false
			}
		}
		got.kind, got.path = 1, max(len(prefix), 1)
	case PathRegex:
		path := r.Path()
		if m.Regex == nil || !m.Regex.MatchString(path) {
			return rank{}, false
		}
		got.kind, got.path = 1, len(path)
	case PathAny:
	}
	if m.Service+m.Call > 0 { // the service's name counts first, then the method's
		got.kind, got.path = m.Service, m.Call
	}
	if m.Method != "" {
		if m.Method != r.Method {
			return rank{}, false
		}
		got.method = 1
	}
	for _, h := range m.Headers {
		if !slices.ContainsFunc(r.Fields.Values(h.Name), h.takes) {
			return rank{}, false
		}
	}
	got.headers = len(m.Headers)
	if len(m.Query) > 0 && *query == nil {
		*query, _ = url.ParseQuery(r.Query()) // what cannot be read matches nothing
	}
	for _, q := range m.Query {
		if !slices.ContainsFunc((*query)[q.Name], q.takes) {
			return rank{}, false
		}
	}
	got.query = len(m.Query)
	return got, true
}

func (v Value) takes(s string) bool {
	if v.Regex != nil {
		return v.Regex.MatchString(s)
	}
	return s == v.Exact
}
