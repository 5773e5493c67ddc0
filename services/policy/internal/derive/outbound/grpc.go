package outbound

import (
	"cmp"

	"github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc/codes"
)

// grpc says GRPCRoutes, with the one that an EgressNetwork has behind all others.
func (b *builder) grpc(routes []attached) []*outbound.GrpcRoute {
	var out []*outbound.GrpcRoute
	for i, a := range routes {
		said := &outbound.GrpcRoute{Metadata: a.metadata(), Hosts: a.hosts}
		for j, r := range a.rules {
			said.Rules = append(said.Rules, b.grpcRule(a, r, uint32(i), uint32(j)))
		}
		out = append(out, said)
	}
	if b.parent.Egress != nil {
		name, closed := b.byPolicy("grpc")
		rule := &outbound.GrpcRoute_Rule{
			Matches:                []*grpc_route.GrpcRouteMatch{{Rpc: &grpc_route.GrpcRpcMatch{}}},
			Backends:               grpcFirst(b.backend(nil)),
			RequestTimeout:         unlessZero(b.settings.timeouts.request), //nolint:staticcheck // older proxies know only this one
			Timeouts:               timeoutsOf(b.settings.timeouts),
			Retry:                  grpcRetry(b.settings.grpcRetry),
			AllowL5DRequestHeaders: b.cluster.AllowHeaders,
		}
		if closed {
			rule.Filters = append(rule.Filters, grpcFailure(codes.PermissionDenied, denied))
		}
		out = append(out, &outbound.GrpcRoute{Metadata: byDefault(name), Rules: []*outbound.GrpcRoute_Rule{rule}})
	}
	return out
}

func (b *builder) grpcRule(a attached, r rule, i, j uint32) *outbound.GrpcRoute_Rule {
	limits, again := b.limits(r), cmp.Or(r.retry, b.settings.grpcRetry)
	choice := b.choose(a, r, b.settings.penalty)
	if b.Complete {
		b.extend(a, r, choice, i, j)
	}
	return &outbound.GrpcRoute_Rule{
		Matches:                r.grpc,
		Filters:                b.grpcFilters(a, r.filters, choice.failure),
		Backends:               b.grpcBackends(a, choice),
		RequestTimeout:         unlessZero(limits.request), //nolint:staticcheck // older proxies know only this one
		Timeouts:               timeoutsOf(limits),
		Retry:                  grpcRetry(again),
		AllowL5DRequestHeaders: b.cluster.AllowHeaders,
	}
}

func (b *builder) grpcBackends(a attached, c choice) *outbound.GrpcRoute_Distribution {
	if c.first != nil {
		return grpcFirst(c.first)
	}
	out := &outbound.GrpcRoute_Distribution_RandomAvailable{}
	for _, w := range c.random {
		out.Backends = append(out.Backends, &outbound.GrpcRoute_WeightedRouteBackend{
			Weight:  w.weight,
			Backend: &outbound.GrpcRoute_RouteBackend{Backend: w.backend, Filters: b.grpcFilters(a, w.filters, w.failure)},
		})
	}
	return &outbound.GrpcRoute_Distribution{Kind: &outbound.GrpcRoute_Distribution_RandomAvailable_{RandomAvailable: out}}
}

// grpcFilters are filters as written; what cannot be obeyed fails every call instead.
func (b *builder) grpcFilters(a attached, f filters, failure string) []*outbound.GrpcRoute_Filter {
	if failure != "" {
		return []*outbound.GrpcRoute_Filter{grpcFailure(codes.Unavailable, failure)}
	}
	if lacking := b.lacking(a, f); lacking != "" {
		return []*outbound.GrpcRoute_Filter{grpcFailure(codes.Unimplemented, lacking)}
	}
	return f.grpc
}

func grpcFirst(b *outbound.Backend) *outbound.GrpcRoute_Distribution {
	return &outbound.GrpcRoute_Distribution{Kind: &outbound.GrpcRoute_Distribution_FirstAvailable_{
		FirstAvailable: &outbound.GrpcRoute_Distribution_FirstAvailable{
			Backends: []*outbound.GrpcRoute_RouteBackend{{Backend: b}},
		},
	}}
}

// grpcFailure fails every call. Linkerd sends 500 here, which is no gRPC code.
func grpcFailure(code codes.Code, message string) *outbound.GrpcRoute_Filter {
	return &outbound.GrpcRoute_Filter{Kind: &outbound.GrpcRoute_Filter_FailureInjector{
		FailureInjector: &grpc_route.GrpcFailureInjector{Code: uint32(code), Message: message, Ratio: always()},
	}}
}
