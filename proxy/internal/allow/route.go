package allow

import (
	"regexp"
	"slices"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/change"
)

// A Request is what routes look at.
type Request struct {
	Method    string
	Authority string // from the URI, else Host; a port is ignored
	Path      string // as sent, escaped
	Header    func(name string) []string
	Query     func(name string) []string
}

type route struct {
	hosts []host
	rules []rule
}

type rule struct {
	ref     Ref
	authz   []authorization
	filters []Filter
	matches []conditions // empty: everything
}

// host is a whole name, or ".suffix".
type host struct {
	name   string
	suffix bool
}

// conditions must all hold.
type conditions struct {
	path    path
	method  string // "" is any
	headers []value
	query   []value
	grpc    bool // service and method in the path count apart
}

type pathKind uint8

const (
	pathAny pathKind = iota
	pathPrefix
	pathRegex
	pathExact
	pathService // gRPC: all methods of a service
	pathMethod  // gRPC: a method of any service
)

type path struct {
	kind  pathKind
	text  string
	regex *regexp.Regexp
}

type value struct {
	name  string
	exact string
	regex *regexp.Regexp
}

func defaultRoute(authz []authorization) route {
	return route{rules: []rule{{ref: Ref{Kind: "default", Name: "default"}, authz: authz}}}
}

// score says how specific a match is, most significant first. It follows the
// Gateway API: host, exact path, length of the path, method, headers, query
// parameters. (Linkerd counts the path's length only and the method last; where
// they differ the written standard wins, see DESIGN.md §5.)
type score [7]int

// match finds the most specific rule, and which of its matches that was (nil if
// it takes everything); the first of equals wins.
func match(routes []route, r Request) (best *rule, by *conditions) {
	var bestScore score
	name := hostOf(r.Authority)
	for i := range routes {
		h, ok := matchHost(routes[i].hosts, name)
		if !ok {
			continue
		}
		for j := range routes[i].rules {
			rule := &routes[i].rules[j]
			s, cond, ok := rule.match(r)
			if !ok {
				continue
			}
			s[0], s[1] = h[0], h[1]
			if best == nil || slices.Compare(s[:], bestScore[:]) > 0 {
				best, by, bestScore = rule, cond, s
			}
		}
	}
	return best, by
}

// matchHost returns the kind (none, suffix, exact) and length of the best match.
func matchHost(hosts []host, name string) (best [2]int, ok bool) {
	if len(hosts) == 0 {
		return best, true
	}
	for _, h := range hosts {
		kind := 0
		switch {
		case !h.suffix && h.name == name:
			kind = 2
		case h.suffix && strings.HasSuffix(name, h.name) && len(name) > len(h.name):
			kind = 1
		default:
			continue
		}
		s := [2]int{kind, len(h.name)}
		if !ok || slices.Compare(s[:], best[:]) > 0 {
			best, ok = s, true
		}
	}
	return best, ok
}

// hostOf drops the port and the trailing dot, and folds case.
func hostOf(authority string) string {
	h := authority
	bare := strings.Count(h, ":") > 1 && !strings.HasPrefix(h, "[") // IPv6 without a port
	if i := strings.LastIndexByte(h, ':'); i >= 0 && !bare && !strings.HasSuffix(h, "]") {
		h = h[:i]
	}
	return strings.ToLower(strings.TrimSuffix(h, "."))
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (r *rule) match(req Request) (best score, by *conditions, ok bool) {
	if len(r.matches) == 0 {
		return best, nil, true
	}
	for i := range r.matches {
		s, matched := r.matches[i].match(req)
		if matched && (!ok || slices.Compare(s[:], best[:]) > 0) {
			best, by, ok = s, &r.matches[i], true
		}
	}
	return best, by, ok
}

func (c *conditions) prefix() change.Prefix {
	if c == nil {
		return change.Prefix{Ok: true}
	}
	return change.Prefix{Text: c.path.text, Ok: c.path.kind == pathPrefix || c.path.kind == pathAny}
}

func (c *conditions) match(r Request) (s score, ok bool) {
	if c.grpc && r.Method != "POST" {
		return s, false
	}
	if c.method != "" && c.method != r.Method {
		return s, false
	}
	exact, length, ok := c.path.match(r.Path)
	if !ok || !all(c.headers, r.Header) || !all(c.query, r.Query) {
		return s, false
	}
	method := boolInt(c.method != "")
	return score{0, 0, exact, length, method, len(c.headers), len(c.query)}, true
}

// match returns whether the path is matched exactly, and how much of it.
func (p *path) match(s string) (exact, length int, ok bool) {
	switch p.kind {
	case pathAny:
		return 0, 0, true
	case pathExact:
		return 1, len(p.text), s == p.text
	case pathRegex:
		return 0, len(s), p.regex.MatchString(s)
	case pathPrefix:
		// By whole segments: /foo takes /foo and /foo/bar, not /foobar.
		trimmed := strings.TrimRight(p.text, "/")
		rest, found := strings.CutPrefix(s, trimmed)
		return 0, max(len(trimmed), 1), found && (rest == "" || rest[0] == '/')
	case pathService:
		return 0, len(p.text), strings.HasPrefix(s, p.text)
	case pathMethod:
		return 0, len(p.text), strings.HasSuffix(s, p.text) && strings.Count(s, "/") == 2
	}
	return 0, 0, false
}

// all reports whether each wanted name has a value that fits.
func all(want []value, values func(string) []string) bool {
	for i := range want {
		if values == nil || !slices.ContainsFunc(values(want[i].name), want[i].fits) {
			return false
		}
	}
	return true
}

func (v *value) fits(s string) bool {
	if v.regex != nil {
		return v.regex.MatchString(s)
	}
	return s == v.exact
}
