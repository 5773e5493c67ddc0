package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/redirect"
)

// initArgs are linkerd2-proxy-init's arguments.
type initArgs struct {
	redirect.Options

	portsToRedirect, skipInbound, skipOutbound, skipSubnets list

	simulate  bool
	netns     string
	closeWait int
	log       logging

	// Of no meaning here: nothing but the kernel is called.
	binPath, savePath, mode string
	wait                    bool
}

func parseInit(c call) (*initArgs, error) {
	a := &initArgs{}
	fs := flag.NewFlagSet("linkerd2-proxy-init", flag.ContinueOnError)
	port := func(p *int, name, short, help string) {
		fs.IntVar(p, name, -1, help)
		fs.IntVar(p, short, -1, "short for --"+name)
	}
	id := func(p *int64, name, short, help string) {
		fs.Int64Var(p, name, -1, help)
		fs.Int64Var(p, short, -1, "short for --"+name)
	}
	port(&a.Inbound, "incoming-proxy-port", "p", "the proxy's inbound port")
	port(&a.Outbound, "outgoing-proxy-port", "o", "the proxy's outbound port")
	id(&a.UID, "proxy-uid", "u", "the user whose connections are left alone: the proxy's")
	id(&a.GID, "proxy-gid", "g", "the group whose connections are left alone")
	fs.Var(&a.portsToRedirect, "ports-to-redirect", "inbound ports to redirect; all if there are none")
	fs.Var(&a.portsToRedirect, "r", "short for --ports-to-redirect")
	fs.Var(&a.skipInbound, "inbound-ports-to-ignore", "inbound ports and ranges to leave alone")
	fs.Var(&a.skipOutbound, "outbound-ports-to-ignore", "outbound ports and ranges to leave alone")
	fs.Var(&a.skipSubnets, "subnets-to-ignore", "sources (CIDRs) whose connections to this pod are left alone")
	fs.BoolVar(&a.IPv6, "ipv6", true, "redirect IPv6 too")
	fs.BoolVar(&a.simulate, "simulate", false, "print the rules, as nft reads them, and change nothing")
	fs.StringVar(&a.netns, "netns", "", "path of the network namespace; this process's own if empty")
	fs.IntVar(&a.closeWait, "timeout-close-wait-secs", 0, "set nf_conntrack_tcp_timeout_close_wait, if not 0")
	a.log.register(fs, "plain", "info")
	const nothing = "accepted for Linkerd's sake; it means nothing here, where no program is called"
	fs.StringVar(&a.binPath, "firewall-bin-path", "", nothing)
	fs.StringVar(&a.savePath, "firewall-save-bin-path", "", nothing)
	fs.StringVar(&a.mode, "iptables-mode", "", nothing)
	fs.BoolVar(&a.wait, "use-wait-flag", false, nothing)
	fs.BoolVar(&a.wait, "w", false, nothing)
	if err := parse(fs, c.args, c.stdout); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, usage(fmt.Sprintf("there is an argument too many: %q", fs.Arg(0)))
	}
	if a.closeWait < 0 {
		return nil, usage(fmt.Sprintf("timeout-close-wait-secs is %d, and it counts seconds", a.closeWait))
	}
	a.Redirect, a.SkipInbound, a.SkipOutbound, a.SkipSubnets = a.portsToRedirect, a.skipInbound, a.skipOutbound, a.skipSubnets
	return a, nil
}

// ignored names the arguments that were given and mean nothing here.
func (a *initArgs) ignored() []string {
	var out []string
	for _, x := range []struct {
		name  string
		given bool
	}{
		{"firewall-bin-path", a.binPath != ""},
		{"firewall-save-bin-path", a.savePath != ""},
		{"iptables-mode", a.mode != ""},
		{"use-wait-flag", a.wait},
	} {
		if x.given {
			out = append(out, x.name)
		}
	}
	return out
}

// initialize redirects the traffic of the pod whose network it shares. It exits
// 1 when the kernel refuses; nothing has changed then.
func initialize(_ context.Context, c call) int {
	return finish(c, "linkerd2-proxy-init", c.initialize(), 1)
}

func (c call) initialize() error {
	a, err := parseInit(c)
	if err != nil {
		return err
	}
	log, err := a.log.logger(c.stderr)
	if err != nil {
		return err
	}
	rules, err := redirect.Plan(a.Options)
	if err != nil {
		return err
	}
	if a.simulate {
		fmt.Fprint(c.stdout, rules)
		return nil
	}
	if names := a.ignored(); len(names) > 0 {
		log.Info("arguments accepted that mean nothing here: the rules go to the kernel directly", "names", strings.Join(names, ","))
	}
	redirect.RaiseNetAdmin()
	return redirect.Within(a.netns, func(in redirect.Namespace) error { return c.apply(a, rules, in, log) })
}

func (c call) apply(a *initArgs, rules redirect.Rules, in redirect.Namespace, log *slog.Logger) error {
	if a.closeWait > 0 {
		if err := in.CloseWait(a.closeWait); err != nil {
			return err
		}
		log.Info("conntrack's close-wait timeout set", "seconds", a.closeWait)
	}
	if err := redirect.Apply(rules, in); err != nil {
		return err
	}
	log.Info("the pod's traffic is redirected to its proxy", "inbound", a.Inbound, "outbound", a.Outbound, "ipv6", a.IPv6)
	log.Debug("the table", "rules", rules.String())
	return nil
}
