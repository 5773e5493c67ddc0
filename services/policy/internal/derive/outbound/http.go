package outbound

import (
	"cmp"

	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
)

// What a failed request is answered with.
const (
	statusFailed = 500
	statusDenied = 403
	denied       = "traffic not allowed"
)

// http says HTTPRoutes, with the one that the parent has of itself: a Service if
// nothing else is attached, an EgressNetwork behind all others.
func (b *builder) http(routes []attached) []*outbound.HttpRoute {
	var out []*outbound.HttpRoute
	for i, a := range routes {
		said := &outbound.HttpRoute{Metadata: a.metadata(), Hosts: a.hosts}
		for j, r := range a.rules {
			said.Rules = append(said.Rules, b.httpRule(a, r, uint32(i), uint32(j)))
		}
		out = append(out, said)
	}
	switch {
	case b.parent.Egress != nil:
		name, closed := b.byPolicy("http")
		var filters []*outbound.HttpRoute_Filter
		if closed {
			filters = append(filters, httpFailure(statusDenied, denied))
		}
		out = append(out, b.httpDefault(name, filters))
	case len(out) == 0:
		out = append(out, b.httpDefault("http", nil))
	}
	return out
}

func (b *builder) httpRule(a attached, r rule, i, j uint32) *outbound.HttpRoute_Rule {
	limits, again := b.limits(r), cmp.Or(r.retry, b.settings.retry)
	choice := b.choose(a, r, b.settings.penalty)
	if b.Complete {
		b.extend(a, r, choice, i, j)
	}
	return &outbound.HttpRoute_Rule{
		Matches:                r.http,
		Filters:                b.httpFilters(a, r.filters, choice.failure),
		Backends:               b.httpBackends(a, choice),
		RequestTimeout:         unlessZero(limits.request), //nolint:staticcheck // older proxies know only this one
		Timeouts:               timeoutsOf(limits),
		Retry:                  httpRetry(again),
		AllowL5DRequestHeaders: b.cluster.AllowHeaders,
	}
}

func (b *builder) httpBackends(a attached, c choice) *outbound.HttpRoute_Distribution {
	if c.first != nil {
		return httpFirst(c.first)
	}
	out := &outbound.HttpRoute_Distribution_RandomAvailable{}
	for _, w := range c.random {
		out.Backends = append(out.Backends, &outbound.HttpRoute_WeightedRouteBackend{
			Weight:  w.weight,
			Backend: &outbound.HttpRoute_RouteBackend{Backend: w.backend, Filters: b.httpFilters(a, w.filters, w.failure)},
		})
	}
	return &outbound.HttpRoute_Distribution{Kind: &outbound.HttpRoute_Distribution_RandomAvailable_{RandomAvailable: out}}
}

// httpFilters are filters as written; what cannot be obeyed fails every request instead.
func (b *builder) httpFilters(a attached, f filters, failure string) []*outbound.HttpRoute_Filter {
	if failure = cmp.Or(failure, b.lacking(a, f)); failure != "" {
		return []*outbound.HttpRoute_Filter{httpFailure(statusFailed, failure)}
	}
	return f.http
}

// httpDefault is a parent's own route. It carries the parent's retries and
// timeouts.
func (b *builder) httpDefault(name string, filters []*outbound.HttpRoute_Filter) *outbound.HttpRoute {
	return &outbound.HttpRoute{
		Metadata: byDefault(name),
		Rules: []*outbound.HttpRoute_Rule{{
			Matches: []*http_route.HttpRouteMatch{{
				Path: &http_route.PathMatch{Kind: &http_route.PathMatch_Prefix{Prefix: "/"}},
			}},
			Filters:                filters,
			Backends:               httpFirst(b.backend(b.settings.penalty)),
			RequestTimeout:         unlessZero(b.settings.timeouts.request),
			Timeouts:               timeoutsOf(b.settings.timeouts),
			Retry:                  httpRetry(b.settings.retry),
			AllowL5DRequestHeaders: b.cluster.AllowHeaders,
		}},
	}
}

func httpFirst(b *outbound.Backend) *outbound.HttpRoute_Distribution {
	return &outbound.HttpRoute_Distribution{Kind: &outbound.HttpRoute_Distribution_FirstAvailable_{
		FirstAvailable: &outbound.HttpRoute_Distribution_FirstAvailable{
			Backends: []*outbound.HttpRoute_RouteBackend{{Backend: b}},
		},
	}}
}

// httpFailure fails every request.
func httpFailure(status uint32, message string) *outbound.HttpRoute_Filter {
	return &outbound.HttpRoute_Filter{Kind: &outbound.HttpRoute_Filter_FailureInjector{
		FailureInjector: &http_route.HttpFailureInjector{Status: status, Message: message, Ratio: always()},
	}}
}

func always() *http_route.Ratio { return &http_route.Ratio{Numerator: 1, Denominator: 1} }
