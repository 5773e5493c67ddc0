package why

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"
)

// score orders matches: hosts first, then what the rule says, each number
// counting more than all after it. Of equals the first listed wins.
type score [6]int

// match finds the route that takes a request. Source: spec/proxy.md §6.1, and the
// Gateway API where our proxy follows it: an exact path comes before every other,
// and a method counts more than headers.
func match(p *inbound.ProxyProtocol, r *Request) (m *meta.Metadata, authz []*inbound.Authz, ok bool) {
	var best score
	keep := func(s score, of *meta.Metadata, a []*inbound.Authz) {
		if !ok || slices.Compare(s[:], best[:]) > 0 {
			best, m, authz, ok = s, of, a, true
		}
	}
	path, query, _ := strings.Cut(r.Path, "?")
	values, _ := url.ParseQuery(query)
	for _, route := range httpRoutes(p) {
		host, found := hosts(route.GetHosts(), r.Host)
		if !found {
			continue
		}
		for _, rule := range route.GetRules() {
			for _, one := range orAny(rule.GetMatches(), &http_route.HttpRouteMatch{}) {
				if s, fits := fitsHTTP(one, r, path, values); fits {
					keep(joined(host, s), route.GetMetadata(), route.GetAuthorizations())
				}
			}
		}
	}
	for _, route := range p.GetGrpc().GetRoutes() {
		host, found := hosts(route.GetHosts(), r.Host)
		if !found || r.Method != "POST" {
			continue
		}
		for _, rule := range route.GetRules() {
			for _, one := range orAny(rule.GetMatches(), &grpc_route.GrpcRouteMatch{}) {
				if s, fits := fitsGRPC(one, r, path); fits {
					keep(joined(host, s), route.GetMetadata(), route.GetAuthorizations())
				}
			}
		}
	}
	return m, authz, ok
}

func httpRoutes(p *inbound.ProxyProtocol) []*inbound.HttpRoute {
	return slices.Concat(p.GetDetect().GetHttpRoutes(), p.GetHttp1().GetRoutes(), p.GetHttp2().GetRoutes())
}

// orAny gives a rule without matches one that matches everything.
func orAny[T any](list []T, everything T) []T {
	if len(list) == 0 {
		return []T{everything}
	}
	return list
}

func joined(host int, s [5]int) score { return score{host, s[0], s[1], s[2], s[3], s[4]} }

// hosts scores the best of a route's hosts: exact before wildcard, longer before
// shorter, none at all last.
func hosts(list []*http_route.HostMatch, host string) (score int, ok bool) {
	if len(list) == 0 {
		return 0, true
	}
	host, _, _ = strings.Cut(host, ":")
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	for _, h := range list {
		if exact := h.GetExact(); exact != "" && exact == host {
			return 1 << 16, true
		}
		if s := h.GetSuffix(); s != nil {
			labels := slices.Clone(s.GetReverseLabels())
			slices.Reverse(labels)
			if strings.HasSuffix(host, "."+strings.Join(labels, ".")) {
				score, ok = max(score, len(labels)), true
			}
		}
	}
	return score, ok
}

func fitsHTTP(m *http_route.HttpRouteMatch, r *Request, path string, query url.Values) (s [5]int, ok bool) {
	exact, length, ok := fitsPath(m.GetPath(), path)
	if !ok || !fitsHeaders(m.GetHeaders(), r.Headers) {
		return s, false
	}
	for _, q := range m.GetQueryParams() {
		value := query.Get(q.GetName())
		if !query.Has(q.GetName()) || !is(value, q.GetExact(), q.GetRegex()) {
			return s, false
		}
	}
	method := 0
	if want := m.GetMethod(); want != nil {
		name := want.GetUnregistered()
		if name == "" {
			name = want.GetRegistered().String()
		}
		if name != r.Method {
			return s, false
		}
		method = 1
	}
	return [5]int{exact, length, method, len(m.GetHeaders()), len(m.GetQueryParams())}, true
}

func fitsPath(m *http_route.PathMatch, path string) (exact, length int, ok bool) {
	switch kind := m.GetKind().(type) {
	case *http_route.PathMatch_Exact:
		return 1, len(kind.Exact), kind.Exact == path
	case *http_route.PathMatch_Regex:
		return 0, len(path), whole(kind.Regex, path)
	case *http_route.PathMatch_Prefix:
		prefix := strings.TrimRight(kind.Prefix, "/")
		rest, found := strings.CutPrefix(path, prefix)
		return 0, max(1, len(prefix)), found && (rest == "" || rest[0] == '/')
	}
	return 0, 0, true
}

func fitsHeaders(list []*http_route.HeaderMatch, headers map[string][]string) bool {
	for _, m := range list {
		if !slices.ContainsFunc(headers[strings.ToLower(m.GetName())], func(v string) bool {
			return is(v, string(m.GetExact()), m.GetRegex())
		}) {
			return false
		}
	}
	return true
}

// is compares with the one of two that is set.
func is(value, exact, regex string) bool {
	if regex != "" {
		return whole(regex, value)
	}
	return value == exact
}

// whole says whether an expression spans all of a value; a broken one never does.
func whole(expression, value string) bool {
	re, err := regexp.Compile(`\A(?:` + expression + `)\z`)
	return err == nil && re.MatchString(value)
}

func fitsGRPC(m *grpc_route.GrpcRouteMatch, r *Request, path string) (s [5]int, ok bool) {
	service, method, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	wantService, wantMethod := m.GetRpc().GetService(), m.GetRpc().GetMethod()
	if cmp.Or(wantService, service) != service || cmp.Or(wantMethod, method) != method || !fitsHeaders(m.GetHeaders(), r.Headers) {
		return s, false
	}
	return [5]int{len(wantService), len(wantMethod), len(m.GetHeaders())}, true
}
