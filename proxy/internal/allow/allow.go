// Package allow decides who may talk to a port of this workload. It is pure: a
// policy is compiled once from the control plane's message (or from the default),
// and then answers questions about clients and requests with values only.
//
// Nothing is allowed that no authorization names: an empty policy, a malformed
// one, or a request that no route takes is refused.
package allow

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/proxy/internal/change"
)

// Protocol is what the port's server speaks.
type Protocol uint8

// The protocols of spec/proxy.md §10.2.
const (
	Detect Protocol = iota
	HTTP1
	HTTP2
	GRPC
	Opaque
	TLS
)

// A Ref names the resource a decision came from, for labels.
type Ref struct{ Group, Kind, Name string }

// Policy is a port's compiled policy. It never changes.
type Policy struct {
	Protocol Protocol
	Timeout  time.Duration // of HTTP detection, when Protocol is Detect
	Server   Ref
	Limits   *Limits // of requests; nil if there are none

	tcp    []authorization // nil for HTTP protocols: opaque fallback is refused
	routes []route
	broken bool // the message could not be understood
	audit  bool // admits everyone, and says so
}

// Broken reports that the control plane sent a policy this proxy cannot read.
// HTTP is answered 500 and everything else closed.
func (p *Policy) Broken() bool { return p.broken }

// TLSState is what is known of a client's TLS.
type TLSState uint8

// The states.
const (
	Plaintext  TLSState = iota
	Passed              // TLS that is not ours to terminate
	Terminated          // mutual TLS, or TLS without a client certificate
)

// A Client is who asks.
type Client struct {
	Addr netip.Addr
	TLS  TLSState
	ID   string // proven identity; "" if none
}

// Verdict is the answer, with what it rests on.
type Verdict struct {
	Allowed bool
	Server  Ref
	Route   Ref // HTTP only
	Authz   Ref // only if Allowed

	NoRoute bool // HTTP: nothing matches, which is a 404
	Broken  bool // HTTP: the policy is broken, which is a 500
	Audited bool // allowed only because the default policy is audit
	Filters []Filter
	// Prefix is what the route matched of the path.
	Prefix change.Prefix
}

// TCP decides on a connection.
func (p *Policy) TCP(c Client) Verdict {
	v := Verdict{Server: p.Server}
	return p.admit(v, p.tcp, c)
}

// HTTP decides on a request.
func (p *Policy) HTTP(c Client, r Request) Verdict {
	v := Verdict{Server: p.Server, Broken: p.broken}
	if p.broken {
		return v
	}
	rule, by := match(p.routes, r)
	if rule == nil {
		v.NoRoute = true
		return v
	}
	v.Route, v.Filters = rule.ref, rule.filters
	v.Prefix = by.prefix()
	return p.admit(v, rule.authz, c)
}

func (p *Policy) admit(v Verdict, authz []authorization, c Client) Verdict {
	for i := range authz {
		if authz[i].matches(c) {
			v.Allowed, v.Authz = true, authz[i].ref
			v.Audited = p.audit
			return v
		}
	}
	return v
}

// authentication is what a client must have shown.
type authentication uint8

const (
	nobody authentication = iota // the zero value admits nobody
	anyone
	anyTLS     // TLS terminated by us, with or without an identity
	identified // one of the identities or suffixes
	plaintext  // not through the mesh; for the rule about this host itself
)

type network struct {
	net    netip.Prefix
	except []netip.Prefix
}

type authorization struct {
	ref        Ref
	networks   []network
	authn      authentication
	identities []string
	suffixes   []string // ".a.b", or "" for every name
}

func (a *authorization) matches(c Client) bool {
	addr := c.Addr.Unmap().WithZone("")
	in := slices.ContainsFunc(a.networks, func(n network) bool {
		return n.net.Contains(addr) &&
			!slices.ContainsFunc(n.except, func(p netip.Prefix) bool { return p.Contains(addr) })
	})
	if !in {
		return false
	}
	switch a.authn {
	case anyone:
		return true
	case plaintext:
		return c.TLS == Plaintext
	case anyTLS:
		return c.TLS == Terminated
	case identified:
		return c.TLS == Terminated && c.ID != "" && a.admits(c.ID)
	}
	return false
}

func (a *authorization) admits(id string) bool {
	if slices.Contains(a.identities, id) {
		return true
	}
	if strings.Contains(id, "://") {
		return false // a URI is admitted only whole, not even by the empty suffix
	}
	return slices.ContainsFunc(a.suffixes, func(s string) bool { return strings.HasSuffix(id, s) })
}
