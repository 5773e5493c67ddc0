package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/weftmesh/weft/proxy/internal/admin"
	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/control"
	"github.com/weftmesh/weft/proxy/internal/drain"
	"github.com/weftmesh/weft/proxy/internal/identity"
	"github.com/weftmesh/weft/proxy/internal/inbound"
	"github.com/weftmesh/weft/proxy/internal/outbound"
	"github.com/weftmesh/weft/proxy/internal/profile"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
	"github.com/weftmesh/weft/proxy/internal/wire"
	"github.com/weftmesh/weft/services/kit/build"
)

// waitingEvery is how often the log says that there is no certificate yet.
const waitingEvery = 15 * time.Second

var errGrace = errors.New("the shutdown grace period is over")

// serve assembles the proxy, runs it until ctx ends or /shutdown is called, and
// drains it.
func serve(ctx context.Context, cfg config.Config, out outputs, log *slog.Logger) error {
	log.Info("starting", "version", build.Version(), "commit", build.Commit())
	reg := prometheus.NewRegistry()
	metrics := tell.New(tell.Config{RetainIdle: cfg.MetricsIdle})
	reg.MustRegister(metrics)
	process(reg)

	dialer := func(client string) control.Dialer {
		return control.Dialer{TTL: cfg.DNS, Told: control.Told{Client: client, Metrics: metrics}}
	}
	local, err := identity.New(identity.Deps{
		Config: cfg.Identity, Log: log, Metrics: reg,
		Dial: func(ctx context.Context, l *identity.Local) (*grpc.ClientConn, error) {
			return dialer("identity").Dial(ctx, cfg.Identity.Svc, l)
		},
	})
	if err != nil {
		return err
	}
	policy, err := dialer("policy").Dial(ctx, cfg.Policy.Svc, local)
	if err != nil {
		return err
	}
	defer policy.Close()
	destination, err := dialer("destination").Dial(ctx, cfg.Destination.Svc, local)
	if err != nil {
		return err
	}
	defer destination.Close()

	w, err := watch(ctx, cfg, local, metrics, out.stderr, log)
	if err != nil {
		return err
	}
	defer w.close()

	draining := drain.New()
	from, err := outbound.New(outbound.Deps{
		Config: cfg, Identity: local, Destination: destination, Policy: policy, Metrics: metrics, Drain: draining,
		Tap: w.tap, Spans: w.spans, Log: log,
	})
	if err != nil {
		return err
	}
	profiles := profile.New(named(cfg, destination, log), metrics, cfg.Destination.ProfileTimeout, cfg.Inbound.DiscoveryIdle, log)
	in, err := inbound.New(inbound.Deps{
		Config: cfg, Identity: local, Policy: policy, Metrics: metrics, Drain: draining,
		Gateway: from.Gateway(), Profiles: profiles, Tap: w.tap, Spans: w.spans, Access: w.access, Log: log,
	})
	if err != nil {
		return err
	}
	adminAt, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.AdminListen.String())
	if err != nil {
		return fmt.Errorf("listening for the operator on %s: %w", cfg.AdminListen, err)
	}
	detail, err := tell.NewDetail(reg, cfg.MetricsLevel)
	if err != nil {
		return err
	}
	answers := admin.Config{Ready: in.Ready, Metrics: detail, Detail: detail, Level: out.level, Logs: out.logs, Environ: cfg.Environ}
	if strings.EqualFold(strings.TrimSpace(cfg.Log), "off") { // then there is nothing to change
		answers.Level, answers.Logs = nil, nil
	}
	if cfg.ShutdownEndpoint {
		answers.Shutdown = draining.Begin
	}
	log.Info("admin listening", "addr", adminAt.Addr().String())
	log.Info("inbound listening", "addr", in.Addr().String())
	log.Info("outbound listening", "addr", fmt.Sprint(from.Addrs()))
	log.Info("identity", "name", local.Name(), "sni", local.ServerName(), "service", cfg.Identity.Svc.Addr, "destination", cfg.Destination.Svc.Addr, "policy", cfg.Policy.Svc.Addr)

	// Parts end by this context only, which is after the drain.
	running, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var parts sync.WaitGroup
	failed := make(chan error, 8)
	start := func(name string, part func(context.Context) error) {
		parts.Go(func() {
			if err := part(running); err != nil && running.Err() == nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	start("admin", func(ctx context.Context) error { return in.ServeAdmin(ctx, adminAt, admin.New(answers)) })
	start("identity", local.Run)
	start("profiles", profiles.Run)
	start("memory", func(ctx context.Context) error { return wire.Ebb(ctx, unmapper(log)) })
	w.start(start)
	start("inbound", in.Run)
	start("outbound", from.Run)
	go waiting(running, local, log)

	select {
	case <-ctx.Done():
		draining.Begin()
	case <-draining.Begun():
	case err := <-failed:
		cancel(err)
		parts.Wait()
		return err
	}
	err = finish(running, draining, cfg.ShutdownGrace, failed, log)
	cancel(err)
	parts.Wait()
	return nil
}

// finish waits for what is open, for as long as it may.
func finish(ctx context.Context, d *drain.Drain, grace time.Duration, failed <-chan error, log *slog.Logger) error {
	log.Info("draining", "open", d.Open(), "grace", grace)
	ctx, cancel := context.WithTimeoutCause(ctx, grace, errGrace)
	defer cancel()
	go func() {
		select {
		case err := <-failed:
			log.Warn("a part has failed while draining", "error", err)
		case <-ctx.Done():
		}
	}()
	err := d.Wait(ctx)
	if err != nil {
		log.Warn("not everything has ended in time", "open", d.Open(), "error", err)
	}
	return err
}

// named asks for the profiles of names that inbound requests are for.
func named(cfg config.Config, destination *grpc.ClientConn, log *slog.Logger) *resolve.Resolver {
	r := &resolve.Resolver{
		Destination: destpb.NewDestinationClient(destination), Context: cfg.Destination.Context,
		Networks: cfg.Destination.Networks, Suffixes: cfg.Destination.Suffixes, Log: log,
	}
	if !cfg.Destination.Svc.Loopback() {
		r.DestinationLimits = cfg.Streams
	}
	return r
}

func waiting(ctx context.Context, l *identity.Local, log *slog.Logger) {
	t := time.NewTicker(waitingEvery)
	defer t.Stop()
	for {
		select {
		case <-l.Ready():
			return
		case <-ctx.Done():
			return
		case <-t.C:
			log.Warn("waiting for a certificate, nothing is accepted yet")
		}
	}
}
