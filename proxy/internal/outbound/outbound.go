// Package outbound carries what the pod's application sends: it accepts the
// connections, finds out where each wants to go, asks the control plane how to
// get there, and forwards requests or bytes to an endpoint of that target.
//
// A redirected connection goes where it was going before the packet filter sent
// it here. On a machine without redirection the client says where: an
// absolute-form HTTP request or CONNECT (package explicit). A connection is never
// downgraded: what discovery says needs TLS is sent over TLS or not at all.
package outbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/door"
	"github.com/weftmesh/weft/proxy/internal/drain"
	"github.com/weftmesh/weft/proxy/internal/endpoint"
	"github.com/weftmesh/weft/proxy/internal/listen"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/span"
	"github.com/weftmesh/weft/proxy/internal/tap"
	"github.com/weftmesh/weft/proxy/internal/tell"
	"github.com/weftmesh/weft/services/kit/pause"
)

// Identity is what the outbound side needs of the proxy's own.
type Identity interface {
	Name() string
	Ready() <-chan struct{} // closed once there is a certificate
	ClientTLS(id, sni string, alpn ...string) *tls.Config
}

// Deps are what New puts together.
type Deps struct {
	Config      config.Config
	Identity    Identity
	Destination *grpc.ClientConn
	Policy      *grpc.ClientConn
	Metrics     *tell.Metrics
	Drain       *drain.Drain
	Tap         *tap.Registry  // nil shows nothing
	Spans       *span.Exporter // nil makes no spans
	Log         *slog.Logger   // nil means slog.Default()
}

// Outbound is the outbound half of the proxy.
type Outbound struct {
	deps      Deps
	log       *slog.Logger
	listeners []net.Listener

	life      context.Context // of everything that outlives a connection
	end       context.CancelFunc
	resolver  *resolve.Resolver
	endpoints endpoint.Deps
	targets   *shelf[*target]
	names     names
	pools     *shelf[*pool]
	door      *door.Door
	copying   atomic.Int64 // copies of requests under way
}

// New binds the listeners, so that a busy port fails the start; nothing is
// accepted until Run.
func New(deps Deps) (*Outbound, error) {
	o := &Outbound{deps: deps, log: deps.Log}
	if o.log == nil {
		o.log = slog.Default()
	}
	var err error
	if o.listeners, err = bind(deps.Config.Outbound); err != nil {
		return nil, err
	}
	cfg := deps.Config
	o.life, o.end = context.WithCancel(context.Background())
	o.resolver = &resolve.Resolver{
		Destination: destpb.NewDestinationClient(deps.Destination), Policy: outpb.NewOutboundPoliciesClient(deps.Policy), Routes: deps.Policy,
		Context: cfg.Destination.Context, Workload: cfg.Policy.Workload,
		Networks: cfg.Destination.Networks, Suffixes: cfg.Destination.Suffixes, Log: o.log,
		DestinationLimits: limits(cfg.Destination.Svc, cfg.Streams), PolicyLimits: limits(cfg.Policy.Svc, cfg.Streams),
	}
	o.endpoints = endpoint.Deps{
		TLS: deps.Identity, Metrics: deps.Metrics, Config: cfg.Outbound, HTTP2: cfg.HTTP2, Local: cfg.Policy.IPs, Refuse: o.refuse,
	}
	o.targets = newShelf(idle(cfg.Outbound), maxTargets, func(t *target) { t.cancel() })
	o.pools = newShelf(idle(cfg.Outbound), maxPools, o.closePool)
	o.door = o.newDoor(cfg)
	return o, nil
}

// limits bound the streams of a control plane that is not on loopback.
func limits(svc config.Svc, s config.Streams) config.Streams {
	if svc.Loopback() {
		return config.Streams{}
	}
	return s
}

func idle(d config.Direction) time.Duration {
	if d.DiscoveryIdle > 0 {
		return d.DiscoveryIdle
	}
	return 5 * time.Second
}

// refuse keeps the proxy from connecting to itself, which would not end.
func (o *Outbound) refuse(to netip.AddrPort) error {
	for _, own := range o.Addrs() {
		here := own.Addr() == to.Addr()
		if own.Addr().IsUnspecified() {
			here = to.Addr().IsLoopback() || slices.Contains(o.deps.Config.Policy.IPs, to.Addr())
		}
		if here && own.Port() == to.Port() {
			return errLoop
		}
	}
	return nil
}

var errLoop = errors.New("the endpoint is this proxy's own outbound listener")

func bind(cfg config.Direction) ([]net.Listener, error) {
	var all []net.Listener
	for _, addr := range cfg.Listen {
		l, err := listen.TCP(context.Background(), addr, cfg)
		if err != nil {
			for _, l := range all {
				_ = l.Close()
			}
			return nil, fmt.Errorf("listening for outbound connections on %s: %w", addr, err)
		}
		all = append(all, l)
	}
	return all, nil
}

// Addrs are the addresses the listeners are bound to.
func (o *Outbound) Addrs() []netip.AddrPort {
	var all []netip.AddrPort
	for _, l := range o.listeners {
		all = append(all, l.Addr().(*net.TCPAddr).AddrPort())
	}
	return all
}

// Run accepts and serves once there is a certificate, until the drain begins or
// ctx ends. It returns when accepting has stopped; connections go on, held by
// the Drain.
func (o *Outbound) Run(ctx context.Context) error {
	defer func() {
		for _, l := range o.listeners {
			_ = l.Close()
		}
	}()
	select {
	case <-o.deps.Identity.Ready():
	case <-o.deps.Drain.Begun():
		return nil
	case <-ctx.Done():
		return nil
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-o.deps.Drain.Begun():
		case <-ctx.Done():
		case <-stop:
		}
		for _, l := range o.listeners {
			_ = l.Close()
		}
	}()
	var g errgroup.Group
	for _, l := range o.listeners {
		g.Go(func() error { return o.accept(ctx, l) })
	}
	err := g.Wait()
	o.door.Shutdown() // requests end, idle connections go
	return err
}

// Close ends everything at once, discovery included. It is for when the drain
// has taken too long, and after it.
func (o *Outbound) Close() {
	o.end()
	o.door.Close()
	o.targets.empty()
	o.pools.empty()
}

// accept waits a little and goes on when accepting fails, as it does when the
// process is out of file descriptors: connections will end and free some.
func (o *Outbound) accept(ctx context.Context, l net.Listener) error {
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			go o.serve(c.(*net.TCPConn))
		case errors.Is(err, net.ErrClosed):
			return nil
		default:
			o.log.Warn("outbound connection not accepted", "error", err)
			pause.For(ctx, 50*time.Millisecond)
		}
	}
}
