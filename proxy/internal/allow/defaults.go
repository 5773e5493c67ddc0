package allow

import (
	"net/netip"
	"time"
)

var (
	everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	thisHost   = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("::1/128")}
)

// Default is the policy of a port that the control plane has said nothing about.
// name is one of INBOUND_DEFAULT_POLICY's values; any other denies.
func Default(name string, cluster []netip.Prefix, timeout time.Duration, opaque bool) *Policy {
	ref := Ref{Kind: "default", Name: name}
	p := &Policy{Protocol: Detect, Timeout: timeout, Server: ref}
	a := authorization{ref: ref}
	switch name {
	case "all-unauthenticated":
		a.networks, a.authn = networks(everywhere), anyone
	case "audit":
		a.networks, a.authn, p.audit = networks(everywhere), anyone, true
	case "all-authenticated":
		a.networks, a.authn, a.suffixes = networks(everywhere), identified, []string{""}
	case "cluster-unauthenticated":
		a.networks, a.authn = networks(cluster), anyone
	case "cluster-authenticated":
		a.networks, a.authn, a.suffixes = networks(cluster), identified, []string{""}
	default: // deny
		return &Policy{Protocol: Opaque, Server: ref, routes: []route{defaultRoute(nil)}}
	}
	if opaque {
		p.Protocol = Opaque
	}
	p.tcp = []authorization{a}
	p.routes = []route{defaultRoute(p.tcp)}
	return p
}

// localhost is the authorization added to every policy of the control plane, so
// that the pod can reach itself. It covers plaintext only: Linkerd's proxies
// never use TLS over loopback, and where whole workloads live on loopback
// addresses a mesh client must not pass for this host.
func localhost() authorization {
	return authorization{
		ref:      Ref{Kind: "default", Name: "localhost"},
		networks: networks(thisHost),
		authn:    plaintext,
	}
}

func networks(prefixes []netip.Prefix) []network {
	out := make([]network, len(prefixes))
	for i, p := range prefixes {
		out[i] = network{net: p}
	}
	return out
}

// broken is the policy of a message that makes no sense.
func broken(timeout time.Duration) *Policy {
	return &Policy{Protocol: Detect, Timeout: timeout, Server: Ref{Kind: "default", Name: "invalid"}, broken: true}
}
