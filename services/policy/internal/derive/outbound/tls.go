package outbound

import (
	"github.com/linkerd/linkerd2-proxy-api/go/opaque_route"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
)

// tls says TLSRoutes, with the one that an EgressNetwork has behind all others.
func (b *builder) tls(routes []attached) *outbound.ProxyProtocol_Tls {
	out := &outbound.ProxyProtocol_Tls{}
	for _, a := range routes {
		said := &outbound.TlsRoute{Metadata: a.metadata(), Snis: a.snis}
		for _, r := range a.rules {
			said.Rules = append(said.Rules, b.tlsRule(a, r))
		}
		out.Routes = append(out.Routes, said)
	}
	if b.parent.Egress != nil {
		name, closed := b.byPolicy("tls")
		rule := &outbound.TlsRoute_Rule{Backends: tlsFirst(b.backend(nil))}
		if closed {
			rule.Filters = append(rule.Filters, &outbound.TlsRoute_Filter{
				Kind: &outbound.TlsRoute_Filter_Forbidden{Forbidden: &opaque_route.Forbidden{}},
			})
		}
		out.Routes = append(out.Routes, &outbound.TlsRoute{Metadata: byDefault(name), Rules: []*outbound.TlsRoute_Rule{rule}})
	}
	return out
}

func (b *builder) tlsRule(a attached, r rule) *outbound.TlsRoute_Rule {
	choice := b.choose(a, r, nil)
	out := &outbound.TlsRoute_Rule{}
	if choice.failure != "" {
		out.Filters = append(out.Filters, invalidTLS(choice.failure))
	}
	if choice.first != nil {
		out.Backends = tlsFirst(choice.first)
		return out
	}
	random := &outbound.TlsRoute_Distribution_RandomAvailable{}
	for _, w := range choice.random {
		one := &outbound.TlsRoute_RouteBackend{Backend: w.backend}
		if w.failure != "" {
			one.Filters = append(one.Filters, invalidTLS(w.failure))
		}
		random.Backends = append(random.Backends, &outbound.TlsRoute_WeightedRouteBackend{Weight: w.weight, Backend: one})
	}
	out.Backends = &outbound.TlsRoute_Distribution{Kind: &outbound.TlsRoute_Distribution_RandomAvailable_{RandomAvailable: random}}
	return out
}

func tlsFirst(b *outbound.Backend) *outbound.TlsRoute_Distribution {
	return &outbound.TlsRoute_Distribution{Kind: &outbound.TlsRoute_Distribution_FirstAvailable_{
		FirstAvailable: &outbound.TlsRoute_Distribution_FirstAvailable{
			Backends: []*outbound.TlsRoute_RouteBackend{{Backend: b}},
		},
	}}
}

func invalidTLS(message string) *outbound.TlsRoute_Filter {
	return &outbound.TlsRoute_Filter{Kind: &outbound.TlsRoute_Filter_Invalid{Invalid: &opaque_route.Invalid{Message: message}}}
}
