package resolve

import (
	"net/http"
	"net/netip"
	"slices"
)

// A Target is what a client wants to reach: an address, or, when a client asked
// its proxy by name, an authority (host:port).
type Target struct {
	Addr      netip.AddrPort
	Authority string // used if Addr is not valid
}

// String is the path that discovery is asked for.
func (t Target) String() string {
	if t.Addr.IsValid() {
		return t.Addr.String()
	}
	return t.Authority
}

// decide makes one policy of what the two services said. Either may be nil: there
// is no profile, or the policy service does not know the target. It is nil if
// nobody knows a target that has no address to fall back to.
func decide(t Target, profile *Profile, policy *Policy) *Policy {
	switch {
	case policy != nil:
	case profile != nil && profile.Endpoint != nil:
		policy = forward(fallback("endpoint"), *profile.Endpoint)
	case t.Addr.IsValid():
		policy = forward(fallback("fallback"), Endpoint{Addr: t.Addr})
	default:
		return nil
	}
	if profile == nil {
		return policy
	}
	out := *policy
	if profile.Name != "" && len(profile.Overrides)+len(profile.Routes) > 0 {
		out.HTTP1 = profile.http(t)
		out.HTTP2 = out.HTTP1
		if len(profile.Overrides) > 0 {
			out.Opaque, out.Closes = Split{Kind: SplitRandom, Backends: profile.Overrides}, Stays
		}
		if out.Protocol == Invalid {
			out.Protocol = Detect
		}
	}
	if profile.Opaque && out.Protocol != Invalid {
		out.Protocol = Opaque
		if out.Opaque.Kind == SplitEmpty && out.Closes == Stays {
			out.Opaque = anySplit(*policy)
		}
	}
	return &out
}

// anySplit is where bytes go when a policy made for HTTP is declared opaque: to
// what its first rule names.
func anySplit(p Policy) Split {
	for _, h := range []HTTP{p.HTTP1, p.HTTP2} {
		for _, route := range h.Routes {
			for _, rule := range route.Rules {
				if rule.Backends.Kind != SplitEmpty {
					return rule.Backends
				}
			}
		}
	}
	for _, route := range p.TLS {
		if route.Kind != SplitEmpty && route.Closes == Stays {
			return route.Split
		}
	}
	return Split{}
}

// forward is the policy of one address.
func forward(ref Ref, e Endpoint) *Policy {
	split := Split{Ref: ref, Kind: SplitFirst, Backends: []Backend{{Ref: ref, Weight: 1, Forward: &e, Load: DefaultLoad}}}
	return &Policy{Parent: ref, Protocol: Detect, HTTP1: everything(split), HTTP2: everything(split), Opaque: split}
}

// Requests is where HTTP goes whose client asked for a URI, though the policy has but
// bytes for the target: what closes connections answers requests.
func (p *Policy) Requests() HTTP {
	to := p.Opaque
	to.Backends = slices.Clone(to.Backends)
	for i := range to.Backends {
		b := &to.Backends[i]
		b.Filters = append(slices.Clip(b.Filters), b.Closes.answers()...)
	}
	return HTTP{Routes: []Route{{Ref: to.Ref, Rules: []Rule{{Filters: p.Closes.answers(), Backends: to}}}}}
}

// answers are what the closing of a connection is to a request.
func (c Closing) answers() []Filter {
	status := http.StatusInternalServerError
	switch c {
	case Stays:
		return nil
	case Forbidden:
		status = http.StatusForbidden
	case NoBackend:
	}
	return []Filter{{Fail: &Fail{Status: status, Message: c.Err().Error(), Ratio: 1}}}
}

// everything sends all requests to the split.
func everything(s Split) HTTP {
	return HTTP{Routes: []Route{{Ref: fallback("default"), Rules: []Rule{{Backends: s}}}}}
}
