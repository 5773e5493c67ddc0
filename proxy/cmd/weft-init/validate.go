package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/weftmesh/weft/proxy/internal/validate"
)

// validateNetwork exits validate.ExitCode when the pod is not redirected.
func validateNetwork(ctx context.Context, c call) int {
	return finish(c, "linkerd2-network-validator", c.validate(ctx), validate.ExitCode)
}

func (c call) validate(ctx context.Context) error {
	cfg := validate.Config{}
	timeout := duration(10 * time.Second)
	var log logging
	fs := flag.NewFlagSet("linkerd2-network-validator", flag.ContinueOnError)
	fs.TextVar(&cfg.Listen, "listen-addr", netip.MustParseAddrPort("0.0.0.0:4140"), "where redirected connections arrive: the proxy's outbound listener")
	fs.TextVar(&cfg.Connect, "connect-addr", netip.MustParseAddrPort("192.0.2.2:1404"), "where to connect to")
	fs.Var(&timeout, "timeout", "how long to try (default 10s)")
	log.register(fs, c.env("LINKERD_VALIDATOR_LOG_FORMAT", "plain"), c.env("LINKERD_VALIDATOR_LOG_LEVEL", "info"))
	if err := parse(fs, c.args, c.stdout); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return usage(fmt.Sprintf("there is an argument too many: %q", fs.Arg(0)))
	}
	if timeout <= 0 {
		return usage("timeout is 0, and no connection is made in no time")
	}
	logger, err := log.logger(c.stderr)
	if err != nil {
		return err
	}
	cfg.Timeout, cfg.Log = time.Duration(timeout), logger
	return validate.Run(ctx, cfg)
}

// env is a variable's value, or otherwise if it is not set.
func (c call) env(name, otherwise string) string {
	for _, e := range c.environ {
		if value, ok := strings.CutPrefix(e, name+"="); ok && value != "" {
			return value
		}
	}
	return otherwise
}
