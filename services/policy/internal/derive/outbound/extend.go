package outbound

import (
	"google.golang.org/protobuf/proto"

	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
)

// extend adds what only our own API can say of a rule, if there is anything. A
// rule that fails anyway needs nothing more.
func (b *builder) extend(a attached, r rule, c choice, i, j uint32) {
	if c.failure != "" {
		return
	}
	e := &routesv1.RuleExtension{
		Route:              i,
		Rule:               j,
		Filters:            b.filters(a, r.filters),
		SessionPersistence: r.session,
		AttemptTimeout:     unlessZero(r.attempt),
	}
	for n, w := range c.random {
		if w.failure != "" {
			continue
		}
		if f := b.filters(a, w.filters); f != nil {
			e.Backends = append(e.Backends, &routesv1.BackendExtension{Backend: uint32(n), Filters: f})
		}
	}
	if e.Filters != nil || e.Backends != nil || e.SessionPersistence != nil || e.AttemptTimeout != nil {
		b.extensions = append(b.extensions, e)
	}
}

// filters says the filters that Linkerd's API cannot; nil if there are none. A
// mirror that leads nowhere is left out, as the Gateway API has it.
func (b *builder) filters(a attached, f filters) *routesv1.Filters {
	if !f.extra() {
		return nil
	}
	out := &routesv1.Filters{Rewrite: f.rewrite, ResponseHeaders: f.response}
	for _, m := range f.mirrors {
		backend, failure := b.resolve(a, m.backendRef, 1, b.settings.penalty)
		if failure != "" {
			continue
		}
		encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(backend)
		if err != nil { // a name that is not UTF-8
			continue
		}
		out.Mirrors = append(out.Mirrors, &routesv1.Mirror{
			Backend: encoded, Numerator: m.numerator, Denominator: m.denominator,
		})
	}
	if out.Rewrite == nil && out.ResponseHeaders == nil && len(out.Mirrors) == 0 {
		return nil
	}
	return out
}
