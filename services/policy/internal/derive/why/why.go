// Package why says what an answer of the inbound API means for one client: may
// it come in, which rule lets it, and why the others do not. It is pure, and
// follows the proxy (spec/proxy.md §6.1 and §10.3) without sharing its code.
package why

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"
	"github.com/linkerd/linkerd2-proxy-api/go/net"
)

// Client is who comes, and what it wants.
type Client struct {
	Address netip.Addr
	// Identity is what the client's certificate proves; empty if it has none.
	Identity string
	// TLS means that the workload's own proxy ended the client's TLS. It follows
	// from an identity.
	TLS bool
	// Request is what the client asks for; nil for a connection of which nothing
	// but its bytes is known.
	Request *Request
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
)

// String is the outcome in a word.
func (o Outcome) String() string {
	switch o {
	case Allowed:
		return "allowed"
	case NoRoute:
		return "no route"
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
	// Reason tells what no rule tells.
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
		metadata, authz, ok := match(proto, c.Request)
		if !ok {
			v.Outcome, v.Reason = NoRoute, "no route of the server matches the request"
			return v
		}
		v.Route, own = name(metadata), authz
	case speaksHTTP(proto) && proto.GetDetect() == nil:
		v.Reason = "the server takes only HTTP"
		return v
	}
	v.judge(c, s.GetAuthorizations(), false)
	v.judge(c, own, true)
	// The proxy lets its own pod in, always.
	if c.Address.IsLoopback() && v.Outcome == Denied {
		v.Outcome, v.By = Allowed, "default localhost"
	}
	if v.Outcome == Denied && len(v.Rules) == 0 {
		v.Reason = "there is no authorization"
	}
	return v
}

func speaksHTTP(p *inbound.ProxyProtocol) bool {
	return p.GetDetect() != nil || p.GetHttp1() != nil || p.GetHttp2() != nil || p.GetGrpc() != nil
}

// judge asks rules one by one; the first that holds decides.
func (v *Verdict) judge(c Client, rules []*inbound.Authz, route bool) {
	for _, a := range rules {
		r := Rule{Name: labels(a.GetLabels()), Route: route, Reason: refuses(a, c)}
		v.Rules = append(v.Rules, r)
		if r.Reason == "" && v.Outcome == Denied {
			v.Outcome, v.By = Allowed, r.Name
		}
	}
}

// refuses tells why a rule does not let a client in; empty if it does.
func refuses(a *inbound.Authz, c Client) string {
	if !within(a.GetNetworks(), c.Address) {
		return fmt.Sprintf("%v is not in its networks", c.Address)
	}
	tls := a.GetAuthentication().GetMeshTLS()
	switch {
	case a.GetAuthentication().GetUnauthenticated() != nil:
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

func within(networks []*inbound.Network, a netip.Addr) bool {
	for _, n := range networks {
		if !prefix(n.GetNet()).Contains(a) {
			continue
		}
		excepted := false
		for _, e := range n.GetExcept() {
			excepted = excepted || prefix(e).Contains(a)
		}
		if !excepted {
			return true
		}
	}
	return false
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

func name(m *meta.Metadata) string {
	if r := m.GetResource(); r != nil {
		return r.GetKind() + " " + r.GetName()
	}
	return "default " + m.GetDefault()
}
