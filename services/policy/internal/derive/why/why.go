// Package why says what an answer of the inbound API means for one client: may
// it come in, which rule lets it, and why the others do not. It is pure, and
// follows the proxy (spec/proxy.md §6.1 and §10.3) without sharing its code.
package why

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/net"
)

// Client is who comes, and what it wants.
type Client struct {
	// Address is invalid if nobody knows it.
	Address netip.Addr
	// Identity is what the client's certificate proves; empty if it has none.
	Identity string
	// TLS means that the workload's own proxy ended the client's TLS. It follows
	// from an identity.
	TLS bool
	// Request is what the client asks for; nil for a connection of which nothing
	// but its bytes is known.
	Request *Request
	// Route is the route that takes its requests, as kind and name, where they are
	// not known themselves.
	Route string
}

// Request is an HTTP request; a gRPC call is one of method POST and of path
// /service/method.
type Request struct {
	Method string
	// Path with or without a query.
	Path    string
	Host    string
	Headers map[string][]string // names in lower case
}

// Outcome is what becomes of a client.
type Outcome uint8

// The outcomes.
const (
	// Denied: the connection is closed, or the answer is 403.
	Denied Outcome = iota
	Allowed
	// NoRoute: the answer is 404.
	NoRoute
	// Unknown: it depends on what is not known.
	Unknown
)

// String is the outcome in a word.
func (o Outcome) String() string {
	switch o {
	case Allowed:
		return "allowed"
	case NoRoute:
		return "no route"
	case Unknown:
		return "unknown"
	}
	return "denied"
}

// Rule is one authorization and what it says to the client.
type Rule struct {
	// Name is kind and name, such as "authorizationpolicy door".
	Name string
	// Route is set if the rule holds on the matched route alone.
	Route bool
	// Reason tells why the rule does not let the client in; empty if it does.
	Reason string
}

// Verdict is the whole story.
type Verdict struct {
	Outcome Outcome
	// Server is the Server of the port, or the default policy.
	Server string
	// Route is what took the request; empty without a request or a route.
	Route string
	// By is the rule that let the client in: the first that does.
	By string
	// Rules are all that were asked, in order, the deciding one among them.
	Rules []Rule
	// Routes are those that the request may take, in order, the one that takes it
	// among them; none without a request.
	Routes []RouteReason
	// Reason tells what no rule tells.
	Reason string
	// TooMuch means that the outcome is Unknown for what it would cost to find out.
	TooMuch bool
}

// RouteReason is one route and what it says to a request.
type RouteReason struct {
	Name string
	// Reason tells why the route does not take the request; empty if it does.
	Reason string
}

// Explain judges a client by an answer.
func Explain(s *inbound.Server, c Client) Verdict {
	v := Verdict{Server: labels(s.GetLabels())}
	c.TLS = c.TLS || c.Identity != ""
	c.Address = c.Address.Unmap()
	var own []*inbound.Authz
	switch proto := s.GetProtocol(); {
	case speaksHTTP(proto) && c.Request != nil:
		offers, authz := inboundOffers(proto)
		taken, routes, costly := choose(offers, c.Request)
		if costly {
			v.Outcome, v.Reason, v.TooMuch = Unknown, tooMuch, true
			return v
		}
		v.Routes = routes
		if taken < 0 {
			v.Outcome, v.Reason = NoRoute, "no route of the server matches the request"
			return v
		}
		v.Route, own = offers[taken].route, authz[taken]
	case speaksHTTP(proto) && c.Route != "":
		offers, authz := inboundOffers(proto)
		i := slices.IndexFunc(offers, func(o offer) bool { return o.route == c.Route })
		if i < 0 {
			v.Outcome, v.Reason = Unknown, c.Route+" is not among the routes: which of them takes its requests depends on them"
			return v
		}
		v.Route, own = c.Route, authz[i]
	case speaksHTTP(proto) && proto.GetDetect() == nil:
		v.Reason = "the server takes only HTTP"
		return v
	}
	v.judge(c, s.GetAuthorizations(), false)
	v.judge(c, own, true)
	// The proxy lets its own pod in, always: from these two addresses.
	if v.Outcome == Denied && (c.Address == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || c.Address == netip.IPv6Loopback()) {
		v.Outcome, v.By = Allowed, "default localhost"
	}
	switch {
	case v.Outcome == Denied && len(v.Rules) == 0:
		v.Reason = "there is no authorization"
	case v.Outcome == Unknown:
		v.Reason = "it depends on the client's address, which is not known"
	}
	return v
}

func speaksHTTP(p *inbound.ProxyProtocol) bool {
	return p.GetDetect() != nil || p.GetHttp1() != nil || p.GetHttp2() != nil || p.GetGrpc() != nil
}

// judge asks rules one by one; the first that holds decides.
func (v *Verdict) judge(c Client, rules []*inbound.Authz, route bool) {
	for _, a := range rules {
		reason, maybe := refuses(a, c)
		r := Rule{Name: labels(a.GetLabels()), Route: route, Reason: reason}
		v.Rules = append(v.Rules, r)
		switch {
		case v.Outcome == Allowed:
		case reason == "":
			v.Outcome, v.By = Allowed, r.Name
		case maybe:
			v.Outcome = Unknown
		}
	}
}

// refuses tells why a rule does not let a client in; empty if it does. maybe is
// set if it would from some addresses, and the client's is not known.
func refuses(a *inbound.Authz, c Client) (reason string, maybe bool) {
	inside, known := within(a.GetNetworks(), c.Address)
	if known && !inside {
		return fmt.Sprintf("%v is not in its networks", c.Address), false
	}
	if reason := permits(a.GetAuthentication(), c); reason != "" {
		return reason, false
	}
	if !known {
		return "it lets in some networks only", true
	}
	return "", false
}

// permits tells why a client's proof is not enough; empty if it is.
func permits(a *inbound.Authn, c Client) string {
	tls := a.GetMeshTLS()
	switch {
	case a.GetUnauthenticated() != nil:
		return ""
	case tls == nil:
		return "it permits nobody"
	case !c.TLS:
		return "it asks for mesh TLS"
	case tls.GetUnauthenticated() != nil:
		return ""
	case c.Identity == "":
		return "it asks for an identity"
	case identified(tls.GetIdentities(), c.Identity):
		return ""
	}
	return fmt.Sprintf("%s is not among its identities", c.Identity)
}

func identified(clients *inbound.Authn_PermitMeshTLS_PermitClientIdentities, identity string) bool {
	for _, id := range clients.GetIdentities() {
		if id.GetName() == identity {
			return true
		}
	}
	if strings.Contains(identity, "://") {
		return false // a suffix is of DNS names; not even the empty one matches a URI
	}
	for _, s := range clients.GetSuffixes() {
		suffix := strings.Join(s.GetParts(), ".")
		if suffix == "" || strings.HasSuffix(identity, "."+suffix) {
			return true
		}
	}
	return false
}

// within says whether an address is in one of some networks. Of an address that
// is not known that can be said only if they hold all there are, or none.
func within(networks []*inbound.Network, a netip.Addr) (inside, known bool) {
	var v4, v6 bool // all of the family
	for _, n := range networks {
		net := prefix(n.GetNet())
		if !a.IsValid() {
			all := net.IsValid() && net.Bits() == 0 && len(n.GetExcept()) == 0
			v4, v6 = v4 || all && net.Addr().Is4(), v6 || all && net.Addr().Is6()
			continue
		}
		if !net.Contains(a) {
			continue
		}
		excepted := false
		for _, e := range n.GetExcept() {
			excepted = excepted || prefix(e).Contains(a)
		}
		if !excepted {
			return true, true
		}
	}
	if a.IsValid() || len(networks) == 0 {
		return false, true
	}
	return v4 && v6, v4 && v6
}

// prefix reads a network; an impossible one contains nothing.
func prefix(n *net.IPNetwork) netip.Prefix {
	var a netip.Addr
	switch ip := n.GetIp().GetIp().(type) {
	case *net.IPAddress_Ipv4:
		a = netip.AddrFrom4([4]byte{byte(ip.Ipv4 >> 24), byte(ip.Ipv4 >> 16), byte(ip.Ipv4 >> 8), byte(ip.Ipv4)})
	case *net.IPAddress_Ipv6:
		var b [16]byte
		for i := range 8 {
			b[i] = byte(ip.Ipv6.GetFirst() >> (56 - 8*i))
			b[8+i] = byte(ip.Ipv6.GetLast() >> (56 - 8*i))
		}
		a = netip.AddrFrom16(b)
	}
	p, err := a.Prefix(int(n.GetPrefixLen()))
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

func labels(l map[string]string) string { return l["kind"] + " " + l["name"] }
