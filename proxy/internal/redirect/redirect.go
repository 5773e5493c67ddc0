// Package redirect sends a pod's TCP through its proxy: what the application
// sends goes to the proxy's outbound listener, what others send to the pod goes
// to its inbound listener. Which connections, and which not, is decided by Plan
// alone, which touches nothing; Apply writes a plan into a network namespace.
//
// The rules are linkerd2-proxy-init's: traffic of the proxy's own user and what
// stays on the loopback device is left alone, so a pod that calls its own
// address reaches itself, and a proxy that calls its own pod does too. All of it
// is one nftables table that is replaced in one transaction; a namespace is never
// half redirected, and no other table is read or written.
package redirect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weftmesh/weft/services/kit/say"
)

// Table is the name of the one table, in family inet.
const Table = "weft"

// ExitUsage is the exit code for arguments that make no sense.
const ExitUsage = 64

// most is how many spans a list may have after merging. It keeps a plan to a few
// netlink messages; the longest list seen in the field has some hundred ports.
const most = 1024

// Options are what a person or the injector asks for, as it was written.
type Options struct {
	Inbound  int // port of the proxy's inbound listener
	Outbound int // port of the proxy's outbound listener

	// UID and GID are whom the proxy runs as; negative is unknown. At least one is
	// needed, or the proxy's own connections would be sent back to it.
	UID, GID int64

	Redirect     []string // inbound ports to redirect; empty is all
	SkipInbound  []string // inbound ports left alone: "80", "1000-2000"
	SkipOutbound []string // outbound ports left alone
	SkipSubnets  []string // sources (CIDRs) whose connections to the pod are left alone

	IPv6 bool // IPv6 too; IPv4 always
}

// Plan turns options into rules. Its error is a *say.Problem that names every
// bad value and exits with ExitUsage.
func Plan(o Options) (Rules, error) {
	var bad []string
	complain := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }

	for _, p := range []struct {
		name string
		port int
	}{{"incoming-proxy-port", o.Inbound}, {"outgoing-proxy-port", o.Outbound}} {
		if p.port < 1 || p.port > 65535 {
			complain("%s is %d, and a port is 1 to 65535", p.name, p.port)
		}
	}
	if o.Inbound == o.Outbound && o.Inbound > 0 {
		complain("incoming-proxy-port and outgoing-proxy-port are both %d", o.Inbound)
	}
	if o.UID < 0 && o.GID < 0 {
		complain("neither proxy-uid nor proxy-gid is given, so the proxy's own connections would be sent back to it")
	}
	for _, id := range []struct {
		name string
		id   int64
	}{{"proxy-uid", o.UID}, {"proxy-gid", o.GID}} {
		if id.id >= 1<<32-1 { // the last one means "no user"
			complain("%s is %d, and an id has 32 bits", id.name, id.id)
		}
	}
	ports := func(name string, in []string) []Span {
		spans, err := ParsePorts(in)
		if err != nil {
			complain("%s: %v", name, err)
		}
		return spans
	}
	redirect := ports("ports-to-redirect", o.Redirect)
	skipIn := ports("inbound-ports-to-ignore", o.SkipInbound)
	skipOut := ports("outbound-ports-to-ignore", o.SkipOutbound)
	v4, v6, err := ParseSubnets(o.SkipSubnets)
	if err != nil {
		complain("subnets-to-ignore: %v", err)
	}
	if len(bad) > 0 {
		return Rules{}, &say.Problem{
			Code: ExitUsage,
			What: "these redirection settings make no sense, so nothing was changed",
			Why:  strings.Join(bad, "\n"),
			Next: "correct the argument, or the config.linkerd.io/… annotation that it came from, and create the pod again",
		}
	}
	if !o.IPv6 {
		v6 = nil
	}

	var rules Rules
	in := Chain{Name: "inbound", Hook: Prerouting}
	out := Chain{Name: "outbound", Hook: Output}
	if !o.IPv6 {
		only := Rule{Match: []Match{{What: notIPv4}}, Why: "IPv6 is not redirected here"}
		in.Rules, out.Rules = append(in.Rules, only), append(out.Rules, only)
	}

	// What arrives: ports first, then sources, as Linkerd orders them.
	skip := func(c *Chain, name string, kind Kind, what What, spans []Span, why string) {
		if len(spans) == 0 {
			return
		}
		rules.Sets = append(rules.Sets, Set{Name: name, Kind: kind, Spans: spans})
		c.Rules = append(c.Rules, Rule{Match: []Match{{What: what, Set: name}}, Why: why})
	}
	skip(&in, "skip_inbound_ports", Ports, toPort, skipIn, "ports that bypass the proxy")
	skip(&in, "skip_subnets_v4", IPv4, fromIPv4, v4, "sources that bypass the proxy")
	skip(&in, "skip_subnets_v6", IPv6, fromIPv6, v6, "sources that bypass the proxy")
	arrive := Rule{Match: []Match{{What: isTCP}}, Port: o.Inbound}
	if len(redirect) > 0 {
		rules.Sets = append(rules.Sets, Set{Name: "redirect_ports", Kind: Ports, Spans: redirect})
		arrive.Match = []Match{{What: toPort, Set: "redirect_ports"}}
	}
	in.Rules = append(in.Rules, arrive)

	// What leaves: first the proxy's own, then what never leaves the pod.
	if o.UID >= 0 {
		out.Rules = append(out.Rules, Rule{Match: []Match{{What: byUser, ID: uint32(o.UID)}}, Why: "the proxy's own connections"})
	}
	if o.GID >= 0 {
		out.Rules = append(out.Rules, Rule{Match: []Match{{What: byGroup, ID: uint32(o.GID)}}, Why: "the proxy's own connections"})
	}
	out.Rules = append(out.Rules, Rule{Match: []Match{{What: overLoopback}}, Why: "the pod talks to itself"})
	skip(&out, "skip_outbound_ports", Ports, toPort, skipOut, "ports that bypass the proxy")
	out.Rules = append(out.Rules, Rule{Match: []Match{{What: isTCP}}, Port: o.Outbound})

	rules.Chains = []Chain{in, out}
	slices.SortFunc(rules.Sets, func(a, b Set) int { return strings.Compare(a.Name, b.Name) })
	return rules, nil
}
