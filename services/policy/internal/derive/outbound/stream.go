package outbound

import (
	"github.com/linkerd/linkerd2-proxy-api/go/opaque_route"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
)

// opaque says the first TCPRoute, or the parent's own route: nothing tells two
// TCPRoutes apart, and a proxy takes only one.
func (b *builder) opaque(routes []attached) *outbound.ProxyProtocol_Opaque {
	var said *outbound.OpaqueRoute
	switch {
	case len(routes) > 0:
		a := routes[0]
		said = &outbound.OpaqueRoute{Metadata: a.metadata()}
		for _, r := range a.rules {
			said.Rules = append(said.Rules, b.opaqueRule(a, r))
		}
	case b.parent.Egress != nil:
		name, closed := b.byPolicy("tcp")
		var filters []*outbound.OpaqueRoute_Filter
		if closed {
			filters = append(filters, forbiddenOpaque())
		}
		said = opaqueDefault(name, b.backend(nil), filters)
	default:
		said = opaqueDefault("opaq", b.backend(b.opaquePenalty()), nil)
	}
	return &outbound.ProxyProtocol_Opaque{Routes: []*outbound.OpaqueRoute{said}}
}

// opaquePenalty is the penalty of a default backend that also serves what turns
// out not to be HTTP: it is one balancer, and proxies let it be there. A port
// that is said to be opaque has none.
func (b *builder) opaquePenalty() *penalty {
	if b.said == opaque {
		return nil
	}
	return b.settings.penalty
}

func (b *builder) opaqueRule(a attached, r rule) *outbound.OpaqueRoute_Rule {
	choice := b.choose(a, r, nil)
	out := &outbound.OpaqueRoute_Rule{}
	if choice.failure != "" {
		out.Filters = append(out.Filters, invalidOpaque(choice.failure))
	}
	if choice.first != nil {
		out.Backends = opaqueFirst(choice.first)
		return out
	}
	random := &outbound.OpaqueRoute_Distribution_RandomAvailable{}
	for _, w := range choice.random {
		one := &outbound.OpaqueRoute_RouteBackend{Backend: w.backend}
		if w.failure != "" {
			one.Filters = append(one.Filters, invalidOpaque(w.failure))
		}
		random.Backends = append(random.Backends, &outbound.OpaqueRoute_WeightedRouteBackend{Weight: w.weight, Backend: one})
	}
	out.Backends = &outbound.OpaqueRoute_Distribution{Kind: &outbound.OpaqueRoute_Distribution_RandomAvailable_{RandomAvailable: random}}
	return out
}

func opaqueDefault(name string, b *outbound.Backend, filters []*outbound.OpaqueRoute_Filter) *outbound.OpaqueRoute {
	return &outbound.OpaqueRoute{
		Metadata: byDefault(name),
		Rules:    []*outbound.OpaqueRoute_Rule{{Backends: opaqueFirst(b), Filters: filters}},
	}
}

func opaqueFirst(b *outbound.Backend) *outbound.OpaqueRoute_Distribution {
	return &outbound.OpaqueRoute_Distribution{Kind: &outbound.OpaqueRoute_Distribution_FirstAvailable_{
		FirstAvailable: &outbound.OpaqueRoute_Distribution_FirstAvailable{
			Backends: []*outbound.OpaqueRoute_RouteBackend{{Backend: b}},
		},
	}}
}

func invalidOpaque(message string) *outbound.OpaqueRoute_Filter {
	return &outbound.OpaqueRoute_Filter{Kind: &outbound.OpaqueRoute_Filter_Invalid{Invalid: &opaque_route.Invalid{Message: message}}}
}

func forbiddenOpaque() *outbound.OpaqueRoute_Filter {
	return &outbound.OpaqueRoute_Filter{Kind: &outbound.OpaqueRoute_Filter_Forbidden{Forbidden: &opaque_route.Forbidden{}}}
}
