package resolve

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	grpcpb "github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	routepb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	typespb "github.com/linkerd/linkerd2-proxy-api/go/http_types"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc/codes"

	"github.com/weftmesh/weft/proxy/internal/pattern"
)

func httpOf(routes []*outpb.HttpRoute, accrual *outpb.FailureAccrual) (HTTP, error) {
	var out HTTP
	var err error
	if out.Accrual, err = accrualOf(accrual); err != nil {
		return out, err
	}
	for _, r := range routes {
		route := Route{}
		if route.Ref, err = refOf(r.GetMetadata()); err != nil {
			return out, err
		}
		if route.Hosts, err = hostsOf(r.GetHosts()); err != nil {
			return out, err
		}
		for _, rule := range r.GetRules() {
			got, err := httpRule(rule)
			if err != nil {
				return out, fmt.Errorf("%s: %w", route.Ref, err)
			}
			route.Rules = append(route.Rules, got)
		}
		out.Routes = append(out.Routes, route)
	}
	return out, nil
}

func httpRule(r *outpb.HttpRoute_Rule) (Rule, error) {
	var out Rule
	var err error
	for _, m := range r.GetMatches() {
		got, err := matchOf(m)
		if err != nil {
			return out, err
		}
		out.Matches = append(out.Matches, got)
	}
	if out.Filters, err = httpFilters(r.GetFilters()); err != nil {
		return out, err
	}
	out.Timeouts, out.AllowHeaders = timeoutsOf(r.GetTimeouts()), r.GetAllowL5DRequestHeaders()
	if r.GetTimeouts().GetRequest() == nil {
		out.Timeouts.Request = r.GetRequestTimeout().AsDuration() //nolint:staticcheck // what older controllers send
	}
	if retry := r.GetRetry(); retry != nil {
		if retry.GetConditions() == nil {
			return out, errors.New("a retry without conditions")
		}
		out.Retry = Retry{
			Limit: int(min(retry.GetMaxRetries(), 65535)), MaxBytes: int(retry.GetMaxRequestBytes()),
			Timeout: retry.GetTimeout().AsDuration(), Backoff: backoffOf(retry.GetBackoff()),
		}
		for _, s := range retry.GetConditions().GetStatusRanges() {
			low, high := int(s.GetStart()), int(s.GetEnd())
			if low < 1 || high > 599 || low > high {
				return out, fmt.Errorf("status range %d-%d of a retry", low, high)
			}
			out.Retry.Statuses = append(out.Retry.Statuses, StatusRange{low, high})
		}
	}
	switch d := r.GetBackends().GetKind().(type) {
	case *outpb.HttpRoute_Distribution_Empty_:
		return out, nil
	case *outpb.HttpRoute_Distribution_FirstAvailable_:
		for _, b := range d.FirstAvailable.GetBackends() {
			if err := out.httpBackend(SplitFirst, b, 1); err != nil {
				return out, err
			}
		}
	case *outpb.HttpRoute_Distribution_RandomAvailable_:
		for _, b := range d.RandomAvailable.GetBackends() {
			if err := out.httpBackend(SplitRandom, b.GetBackend(), b.GetWeight()); err != nil {
				return out, err
			}
		}
	}
	return out, out.Backends.check()
}

func (r *Rule) httpBackend(kind SplitKind, b *outpb.HttpRoute_RouteBackend, weight uint32) error {
	filters, err := httpFilters(b.GetFilters())
	if err != nil {
		return err
	}
	return r.Backends.add(kind, b.GetBackend(), weight, filters)
}

func grpcOf(routes []*outpb.GrpcRoute, accrual *outpb.FailureAccrual) (HTTP, error) {
	var out HTTP
	var err error
	if out.Accrual, err = accrualOf(accrual); err != nil {
		return out, err
	}
	for _, r := range routes {
		route := Route{GRPC: true}
		if route.Ref, err = refOf(r.GetMetadata()); err != nil {
			return out, err
		}
		if route.Hosts, err = hostsOf(r.GetHosts()); err != nil {
			return out, err
		}
		for _, rule := range r.GetRules() {
			got, err := grpcRule(rule)
			if err != nil {
				return out, fmt.Errorf("%s: %w", route.Ref, err)
			}
			route.Rules = append(route.Rules, got)
		}
		out.Routes = append(out.Routes, route)
	}
	return out, nil
}

func grpcRule(r *outpb.GrpcRoute_Rule) (Rule, error) {
	var out Rule
	var err error
	for _, m := range r.GetMatches() {
		got, err := grpcMatch(m)
		if err != nil {
			return out, err
		}
		out.Matches = append(out.Matches, got)
	}
	if len(out.Matches) == 0 {
		out.Matches = []Match{{Method: http.MethodPost}}
	}
	if out.Filters, err = grpcFilters(r.GetFilters()); err != nil {
		return out, err
	}
	out.Timeouts, out.AllowHeaders = timeoutsOf(r.GetTimeouts()), r.GetAllowL5DRequestHeaders()
	if r.GetTimeouts().GetRequest() == nil {
		out.Timeouts.Request = r.GetRequestTimeout().AsDuration() //nolint:staticcheck // what older controllers send
	}
	if retry := r.GetRetry(); retry != nil {
		if retry.GetConditions() == nil {
			return out, errors.New("a retry without conditions")
		}
		out.Retry = Retry{
			Limit: int(min(retry.GetMaxRetries(), 65535)), MaxBytes: int(retry.GetMaxRequestBytes()),
			Timeout: retry.GetTimeout().AsDuration(), Backoff: backoffOf(retry.GetBackoff()), GRPC: codesOf(retry.GetConditions()),
		}
	}
	switch d := r.GetBackends().GetKind().(type) {
	case *outpb.GrpcRoute_Distribution_Empty_:
		return out, nil
	case *outpb.GrpcRoute_Distribution_FirstAvailable_:
		for _, b := range d.FirstAvailable.GetBackends() {
			if err := out.grpcBackend(SplitFirst, b, 1); err != nil {
				return out, err
			}
		}
	case *outpb.GrpcRoute_Distribution_RandomAvailable_:
		for _, b := range d.RandomAvailable.GetBackends() {
			if err := out.grpcBackend(SplitRandom, b.GetBackend(), b.GetWeight()); err != nil {
				return out, err
			}
		}
	}
	return out, out.Backends.check()
}

func (r *Rule) grpcBackend(kind SplitKind, b *outpb.GrpcRoute_RouteBackend, weight uint32) error {
	filters, err := grpcFilters(b.GetFilters())
	if err != nil {
		return err
	}
	return r.Backends.add(kind, b.GetBackend(), weight, filters)
}

func codesOf(c *outpb.GrpcRoute_Retry_Conditions) []int {
	var out []int
	for code, on := range map[codes.Code]bool{
		codes.Canceled: c.GetCancelled(), codes.DeadlineExceeded: c.GetDeadineExceeded(), codes.ResourceExhausted: c.GetResourceExhausted(),
		codes.Internal: c.GetInternal(), codes.Unavailable: c.GetUnavailable(),
	} {
		if on {
			out = append(out, int(code))
		}
	}
	slices.Sort(out)
	return out
}

func timeoutsOf(t *routepb.Timeouts) Timeouts {
	return Timeouts{Request: t.GetRequest().AsDuration(), Response: t.GetResponse().AsDuration(), Idle: t.GetIdle().AsDuration()}
}

// hostsOf fails on a match that is not known: without it the route would take
// every host.
func hostsOf(hosts []*routepb.HostMatch) ([]HostMatch, error) {
	var out []HostMatch
	for _, h := range hosts {
		switch m := h.GetMatch().(type) {
		case *routepb.HostMatch_Exact:
			out = append(out, HostMatch{Exact: lower(m.Exact)})
		case *routepb.HostMatch_Suffix_:
			out = append(out, HostMatch{Suffix: suffixOf(m.Suffix.GetReverseLabels())})
		default:
			return nil, errors.New("a host match that is not known")
		}
	}
	return out, nil
}

func matchOf(m *routepb.HttpRouteMatch) (Match, error) {
	var out Match
	var err error
	switch p := m.GetPath().GetKind().(type) {
	case *routepb.PathMatch_Exact:
		out.PathKind, out.Path = PathExact, p.Exact
	case *routepb.PathMatch_Prefix:
		out.PathKind, out.Path = PathPrefix, p.Prefix
	case *routepb.PathMatch_Regex:
		out.PathKind = PathRegex
		if out.Regex, err = pattern.Whole(p.Regex); err != nil {
			return out, fmt.Errorf("reading a path match: %w", err)
		}
	default:
		if m.GetPath() != nil {
			return out, errMatch
		}
	}
	if m.GetMethod() != nil {
		out.Method = methodOf(m.GetMethod())
	}
	if out.Headers, err = headersOf(m.GetHeaders()); err != nil {
		return out, err
	}
	for _, q := range m.GetQueryParams() {
		v := Value{Name: q.GetName(), Exact: q.GetExact()}
		switch expr := q.GetValue().(type) {
		case *routepb.QueryParamMatch_Exact:
		case *routepb.QueryParamMatch_Regex:
			if v.Regex, err = pattern.Whole(expr.Regex); err != nil {
				return out, fmt.Errorf("reading a query match: %w", err)
			}
		default:
			return out, errMatch
		}
		out.Query = append(out.Query, v)
	}
	return out, nil
}

// errMatch makes the whole policy invalid: without the condition the rule would
// take what it was not written for.
var errMatch = errors.New("a match that is not known")

func grpcMatch(m *grpcpb.GrpcRouteMatch) (Match, error) {
	out := Match{Method: http.MethodPost}
	var err error
	service, method := m.GetRpc().GetService(), m.GetRpc().GetMethod()
	out.Service, out.Call = len(service), len(method)
	switch {
	case service != "" && method != "":
		out.PathKind, out.Path = PathExact, "/"+service+"/"+method
	case service != "":
		out.PathKind, out.Path = PathPrefix, "/"+service
	case method != "":
		out.PathKind = PathRegex
		if out.Regex, err = pattern.Whole("/[^/]*/" + quote(method)); err != nil {
			return out, fmt.Errorf("reading a method match: %w", err)
		}
	}
	out.Headers, err = headersOf(m.GetHeaders())
	return out, err
}

func headersOf(all []*routepb.HeaderMatch) ([]Value, error) {
	var out []Value
	for _, h := range all {
		v := Value{Name: h.GetName(), Exact: string(h.GetExact())}
		switch expr := h.GetValue().(type) {
		case *routepb.HeaderMatch_Exact:
		case *routepb.HeaderMatch_Regex:
			var err error
			if v.Regex, err = pattern.Whole(expr.Regex); err != nil {
				return nil, fmt.Errorf("reading a header match: %w", err)
			}
		default:
			return nil, errMatch
		}
		out = append(out, v)
	}
	return out, nil
}

func methodOf(m *typespb.HttpMethod) string {
	if u, ok := m.GetType().(*typespb.HttpMethod_Unregistered); ok {
		return u.Unregistered
	}
	return m.GetRegistered().String()
}
