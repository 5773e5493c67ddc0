package outbound

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// A stack is everything needed to send to a target, bound when the policy
// arrives so that a request finds its routes, pools and metrics made. The layers
// that a request goes through, outermost first:
//
//	tell      http.go     counts the request by its route
//	fault     http.go     answers what could not be sent
//	limit     http.go     requests in flight
//	route     stack.go    the rule that takes it, and its filters
//	retry     retry.go    another try, where that is allowed
//	balance   pool.go     an endpoint of the backend
//	endpoint  ../endpoint connection, mTLS, protocol
type stack struct {
	policy   *resolve.Policy
	http1    []resolve.Route
	http2    []resolve.Route
	rules    map[*resolve.Rule]*rule
	tcp      split
	tls      []split // of policy.TLS
	inflight atomic.Int64

	detected *tell.Detections           // nil where nothing is detected
	arrived  *tell.Counter              // connections
	bytes    func() *tell.Connections   // of tcp; made for the first
	named    []func() *tell.Connections // of tls
	releases []func()
}

// rule is a route's rule with what it needs.
type rule struct {
	*resolve.Rule
	split    split
	tell     *routeTell
	profile  *profileTell // nil but for rules of a ServiceProfile
	mirrors  []mirrorTo
	mirrored bool // the rule, or a backend of it, has mirrors
}

// split is a distribution over pools.
type split struct {
	kind     resolve.SplitKind
	backends []backend
}

type backend struct {
	resolve.Backend
	pool *pool // nil if there is nothing to send to
	err  error // why there is no pool
	tell *routeTell

	mirrors []mirrorTo
}

// build makes the stack of a policy. Pools are shared with other stacks and with
// the one that this replaces.
func (o *Outbound) build(to resolve.Target, p *resolve.Policy) *stack {
	s := &stack{policy: p, rules: map[*resolve.Rule]*rule{}}
	h1, h2 := p.HTTP1, p.HTTP2
	switch p.Protocol {
	case resolve.HTTP1:
		h2 = h1 // what speaks first decides in the end: an HTTP/2 client is not turned away
	case resolve.HTTP2, resolve.GRPC:
		h1 = h2
	case resolve.Opaque:
		// A client that asked for a URI speaks HTTP whatever the policy says of bytes.
		if len(h1.Routes) == 0 {
			h1 = p.Requests()
			h2 = h1
		}
	}
	s.http1, s.http2 = h1.Routes, h2.Routes
	o.bind(s, h1)
	o.bind(s, h2)
	s.tcp = o.split(s, p.Opaque, resolve.Accrual{}, nil)
	m, parent := o.deps.Metrics, refLabels("parent", p.Parent)
	s.arrived = m.Counter(tell.OutboundProtocols, parent.With("protocol", p.Protocol.String()))
	if p.Protocol == resolve.Detect || p.Protocol == resolve.Invalid {
		s.detected = m.Detections(tell.OutboundDetect, tell.OutboundDetectTime, parent)
	}
	connections := func(f tell.RouteFamilies, route resolve.Ref) func() *tell.Connections {
		return sync.OnceValue(func() *tell.Connections { return m.Connections(f, parent.And(refLabels("route", route))) })
	}
	s.bytes = connections(tell.TCPRoute, p.Opaque.Ref)
	for _, route := range p.TLS {
		s.tls = append(s.tls, o.split(s, route.Split, resolve.Accrual{}, nil))
		s.named = append(s.named, connections(tell.TLSRoute, route.Ref))
	}
	o.log.Debug("target bound", "target", to.String(), "protocol", p.Protocol.String(), "parent", p.Parent.String())
	return s
}

func (o *Outbound) bind(s *stack, h resolve.HTTP) {
	for i := range h.Routes {
		route := &h.Routes[i]
		for j := range route.Rules {
			r := &route.Rules[j]
			if s.rules[r] != nil {
				continue
			}
			labels := refLabels("parent", s.policy.Parent).And(refLabels("route", route.Ref))
			t := newRouteTell(o.deps.Metrics, labels, "", route.GRPC)
			bound := &rule{Rule: r, tell: t, split: o.split(s, r.Backends, h.Accrual, t), mirrors: o.mirrors(s, r.Filters)}
			bound.split.usedBy(forHTTP, s.policy.Parent)
			if r.Retry.Limit > 0 && r.Profile == nil {
				t.retriable()
			}
			bound.mirrored = len(bound.mirrors) > 0
			for k := range bound.split.backends {
				b := &bound.split.backends[k]
				b.mirrors = o.mirrors(s, b.Filters)
				bound.mirrored = bound.mirrored || len(b.mirrors) > 0
			}
			if r.Profile != nil {
				bound.profile = newProfileTell(o.deps.Metrics, r.Profile)
			}
			s.rules[r] = bound
		}
	}
}

func (o *Outbound) split(s *stack, d resolve.Split, a resolve.Accrual, t *routeTell) split {
	out := split{kind: d.Kind}
	queue := o.deps.Config.Outbound.HTTPQueue
	if t == nil { // bytes
		queue = o.deps.Config.Outbound.TCPQueue
	}
	for _, b := range d.Backends {
		p, release, err := o.pool(b, a, queue)
		if err == nil {
			s.releases = append(s.releases, release)
		}
		bound := backend{Backend: b, pool: p, err: err}
		if t != nil {
			bound.tell = t.backend(refLabels("backend", b.Ref))
		}
		out.backends = append(out.backends, bound)
	}
	return out
}

func (s *stack) release() {
	for _, release := range s.releases {
		release()
	}
}

// choose takes a backend: the only one, the first that is available, or one at
// random by weight among those that are.
func (d split) choose(random func() float64) (*backend, error) {
	if len(d.backends) == 0 || d.kind == resolve.SplitEmpty {
		return nil, errShed
	}
	if len(d.backends) == 1 {
		return &d.backends[0], nil
	}
	if d.kind == resolve.SplitFirst {
		for i := range d.backends {
			if d.backends[i].available() {
				return &d.backends[i], nil
			}
		}
		return nil, errShed
	}
	total := 0.0
	for i := range d.backends {
		if d.backends[i].available() {
			total += float64(d.backends[i].Weight)
		}
	}
	at := random() * total
	var last *backend
	for i := range d.backends {
		b := &d.backends[i]
		if b.Weight == 0 || !b.available() {
			continue
		}
		last = b
		if at -= float64(b.Weight); at < 0 {
			break
		}
	}
	if last == nil {
		return nil, errShed
	}
	return last, nil
}

// available: what cannot be sent to still takes its share, which is answered
// with an error, as the weights say.
func (b *backend) available() bool { return b.pool == nil || b.pool.Available() }

func random() float64 { return rand.Float64() } //nolint:gosec // spread, not secrecy

// refLabels are the labels of a reference, all names beginning with prefix.
func refLabels(prefix string, r resolve.Ref) tell.Labels {
	l := tell.Labels{
		{Name: prefix + "_group", Value: r.Group},
		{Name: prefix + "_kind", Value: r.Kind},
		{Name: prefix + "_namespace", Value: r.Namespace},
		{Name: prefix + "_name", Value: r.Name},
	}
	if prefix != "route" {
		l = l.With(prefix+"_port", r.PortLabel()).With(prefix+"_section_name", r.Section)
	}
	return l
}
