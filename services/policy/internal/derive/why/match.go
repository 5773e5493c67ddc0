package why

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
)

// score orders matches: hosts first, then what the rule says, each number
// counting more than all after it. Of equals the first listed wins.
type score [6]int

// miss is why something does not fit, and how far it did: of several reasons the
// furthest is told.
type miss struct {
	stage  int
	reason string
}

func missed(stage int, format string, args ...any) *miss {
	return &miss{stage, fmt.Sprintf(format, args...)}
}

// offer is one rule of a route.
type offer struct {
	route string // kind and name
	hosts []*http_route.HostMatch
	// One of two says when the rule fits; a rule of a GRPCRoute has rpc set.
	http []*http_route.HttpRouteMatch
	grpc []*grpc_route.GrpcRouteMatch
	rpc  bool
}

// choose finds the rule that takes a request, -1 if none does, and tells of every
// route why it does not take it. Source: spec/proxy.md §6.1, and the Gateway API
// where our proxy follows it: an exact path comes before every other, and a method
// counts more than headers. tooMuch is set, and nothing taken, if trying them all
// would cost more than an answer may.
func choose(offers []offer, request *Request) (taken int, routes []RouteReason, tooMuch bool) {
	taken = -1
	r := &trial{Request: request, left: maxWork}
	var best score
	fit := make([]*miss, len(offers)) // nil: it fits
	for i, o := range offers {
		s, why := o.fits(r)
		fit[i] = why
		if r.left < 0 {
			return -1, nil, true
		}
		if why == nil && (taken < 0 || slices.Compare(s[:], best[:]) > 0) {
			best, taken = s, i
		}
	}
	for from := 0; from < len(offers); {
		to := from
		var furthest *miss
		reason := RouteReason{Name: offers[from].route}
		fits := false
		for ; to < len(offers) && offers[to].route == offers[from].route; to++ {
			fits = fits || fit[to] == nil
			if m := fit[to]; m != nil && (furthest == nil || m.stage > furthest.stage) {
				furthest = m
			}
		}
		switch {
		case taken >= from && taken < to:
		case fits:
			reason.Reason = "it fits, but " + offers[taken].route + " fits better, or as well and comes first"
		default:
			reason.Reason = furthest.reason
		}
		routes = append(routes, reason)
		from = to
	}
	return taken, routes, false
}

// fits scores the best of a rule's matches.
func (o *offer) fits(r *trial) (best score, why *miss) {
	host, found := hosts(o.hosts, r.Host)
	if !found {
		return best, missed(0, "%q is none of its host names", r.Host)
	}
	if o.rpc && r.Method != "POST" {
		return best, missed(1, "it takes gRPC calls, which are of method POST")
	}
	path, query, _ := strings.Cut(r.Path, "?")
	values, _ := url.ParseQuery(query)
	ok := false
	try := func(s [5]int, m *miss) {
		if m != nil {
			if why == nil || m.stage > why.stage {
				why = m
			}
			return
		}
		if now := (score{host, s[0], s[1], s[2], s[3], s[4]}); !ok || slices.Compare(now[:], best[:]) > 0 {
			best, ok = now, true
		}
	}
	if o.rpc {
		for _, one := range orAny(o.grpc, &grpc_route.GrpcRouteMatch{}) {
			try(r.fitsGRPC(one, path))
		}
	} else {
		for _, one := range orAny(o.http, &http_route.HttpRouteMatch{}) {
			try(r.fitsHTTP(one, path, values))
		}
	}
	if ok {
		return best, nil
	}
	return best, why
}

// orAny gives a rule without matches one that matches everything.
func orAny[T any](list []T, everything T) []T {
	if len(list) == 0 {
		return []T{everything}
	}
	return list
}

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

func (r *trial) fitsHTTP(m *http_route.HttpRouteMatch, path string, query url.Values) (s [5]int, why *miss) {
	exact, length, ok := r.fitsPath(m.GetPath(), path)
	if !ok {
		return s, missed(2, "path %s does not fit %s", path, wantedPath(m.GetPath()))
	}
	if name, ok := r.fitsHeaders(m.GetHeaders()); !ok {
		return s, missed(3, "header %s does not fit", name)
	}
	for _, q := range m.GetQueryParams() {
		value := query.Get(q.GetName())
		if !query.Has(q.GetName()) || !r.is(value, q.GetExact(), q.GetRegex()) {
			return s, missed(4, "query parameter %s does not fit", q.GetName())
		}
	}
	method := 0
	if want := m.GetMethod(); want != nil {
		name := want.GetUnregistered()
		if name == "" {
			name = want.GetRegistered().String()
		}
		if name != r.Method {
			return s, missed(5, "it takes method %s", name)
		}
		method = 1
	}
	return [5]int{exact, length, method, len(m.GetHeaders()), len(m.GetQueryParams())}, nil
}

func (r *trial) fitsPath(m *http_route.PathMatch, path string) (exact, length int, ok bool) {
	switch kind := m.GetKind().(type) {
	case *http_route.PathMatch_Exact:
		return 1, len(kind.Exact), kind.Exact == path
	case *http_route.PathMatch_Regex:
		return 0, len(path), r.whole(kind.Regex, path)
	case *http_route.PathMatch_Prefix:
		prefix := strings.TrimRight(kind.Prefix, "/")
		rest, found := strings.CutPrefix(path, prefix)
		return 0, max(1, len(prefix)), found && (rest == "" || rest[0] == '/')
	}
	return 0, 0, true
}

func wantedPath(m *http_route.PathMatch) string {
	switch kind := m.GetKind().(type) {
	case *http_route.PathMatch_Exact:
		return "exactly " + kind.Exact
	case *http_route.PathMatch_Regex:
		return "expression " + kind.Regex
	}
	return "prefix " + m.GetPrefix()
}

// fitsHeaders names the header that does not fit.
func (r *trial) fitsHeaders(list []*http_route.HeaderMatch) (name string, ok bool) {
	for _, m := range list {
		if !slices.ContainsFunc(r.Headers[strings.ToLower(m.GetName())], func(v string) bool {
			return r.is(v, string(m.GetExact()), m.GetRegex())
		}) {
			return m.GetName(), false
		}
	}
	return "", true
}

// is compares with the one of two that is set.
func (r *trial) is(value, exact, regex string) bool {
	if regex != "" {
		return r.whole(regex, value)
	}
	return value == exact
}

func (r *trial) fitsGRPC(m *grpc_route.GrpcRouteMatch, path string) (s [5]int, why *miss) {
	service, method, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	wantService, wantMethod := m.GetRpc().GetService(), m.GetRpc().GetMethod()
	if cmp.Or(wantService, service) != service || cmp.Or(wantMethod, method) != method {
		return s, missed(2, "call %s does not fit /%s/%s", path, cmp.Or(wantService, "*"), cmp.Or(wantMethod, "*"))
	}
	if name, ok := r.fitsHeaders(m.GetHeaders()); !ok {
		return s, missed(3, "header %s does not fit", name)
	}
	return [5]int{len(wantService), len(wantMethod), len(m.GetHeaders())}, nil
}
