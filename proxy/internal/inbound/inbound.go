// Package inbound accepts what others send to this workload: it terminates
// mutual TLS, finds out which port is meant and what is spoken, asks the port's
// policy, and forwards to the application.
//
// Nothing is forwarded before its policy has allowed it, and what the policy
// later forbids is ended.
package inbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/weftmesh/weft/proxy/internal/accesslog"
	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/door"
	"github.com/weftmesh/weft/proxy/internal/drain"
	"github.com/weftmesh/weft/proxy/internal/listen"
	"github.com/weftmesh/weft/proxy/internal/origdst"
	"github.com/weftmesh/weft/proxy/internal/profile"
	"github.com/weftmesh/weft/proxy/internal/span"
	"github.com/weftmesh/weft/proxy/internal/tap"
	"github.com/weftmesh/weft/proxy/internal/tell"
	"github.com/weftmesh/weft/services/kit/pause"
)

// Identity is what the inbound side needs of the proxy's own.
type Identity interface {
	Name() string
	ServerName() string
	Ready() <-chan struct{}
	ServerTLS() *tls.Config
}

// Deps are what New puts together.
type Deps struct {
	Config   config.Config
	Identity Identity
	Policy   *grpc.ClientConn
	Metrics  *tell.Metrics
	Drain    *drain.Drain
	Gateway  Gateway           // nil serves no names
	Profiles *profile.Profiles // nil knows none
	Tap      *tap.Registry     // nil shows nothing
	Spans    *span.Exporter    // nil makes no spans
	Access   *accesslog.Log    // nil writes no lines
	Log      *slog.Logger      // nil means slog.Default()
}

// Inbound is the inbound half of the proxy.
type Inbound struct {
	deps     Deps
	cfg      config.Config
	log      *slog.Logger
	listener net.Listener
	policies *policies
	origDst  func(*net.TCPConn) (netip.AddrPort, bool) // the kernel's, outside tests

	toApp    net.Dialer
	door     *door.Door
	stack    handler
	named    handler // of requests for a gateway
	mu       sync.Mutex
	apps     map[netip.AddrPort]*workload
	inFlight atomic.Int64
}

// New binds the listener, so that a busy port fails the start. Nothing is
// accepted until Run.
func New(deps Deps) (*Inbound, error) {
	in := &Inbound{deps: deps, cfg: deps.Config, log: deps.Log, origDst: origdst.Of, apps: map[netip.AddrPort]*workload{}}
	if in.log == nil {
		in.log = slog.Default()
	}
	addr := in.cfg.Inbound.Listen[0]
	l, err := listen.TCP(context.Background(), addr, in.cfg.Inbound)
	if err != nil {
		return nil, fmt.Errorf("listening for inbound connections on %s: %w", addr, err)
	}
	in.listener = l
	in.policies = newPolicies(in.cfg, deps.Policy, in.log)
	in.serve()
	return in, nil
}

// Addr is the address the listener is bound to.
func (in *Inbound) Addr() netip.AddrPort { return in.listener.Addr().(*net.TCPAddr).AddrPort() }

// Ready reports whether connections are accepted and the policies of the known
// ports have arrived, or have been waited for long enough. It never goes back.
func (in *Inbound) Ready() bool { return in.policies.settled() }

// Run accepts and serves once there is a certificate, until the drain begins or
// ctx ends. Policies of known ports are watched from the start. Run returns when
// accepting has stopped and HTTP servers are shut down; ctx ends what is left.
func (in *Inbound) Run(ctx context.Context) error {
	defer in.listener.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in.policies.start(ctx)

	select {
	case <-in.deps.Identity.Ready():
	case <-in.deps.Drain.Begun():
		return nil
	case <-ctx.Done():
		return nil
	}
	go func() {
		select {
		case <-in.deps.Drain.Begun():
		case <-ctx.Done():
		}
		_ = in.listener.Close()
	}()
	in.policies.accepting()
	in.accept(ctx)

	// Idle connections close, HTTP/2 clients get GOAWAY, requests finish.
	select {
	case <-in.door.Shutdown():
	case <-ctx.Done():
	}
	_ = in.deps.Drain.Wait(ctx) // opaque connections and tunnels
	in.door.Close()
	in.closeApps()
	return nil
}

// accept waits a little and goes on when accepting fails, as it does when the
// process is out of file descriptors: connections will end and free some.
func (in *Inbound) accept(ctx context.Context) {
	for {
		c, err := in.listener.Accept()
		switch {
		case err == nil:
			release := in.deps.Drain.Hold()
			go in.handle(ctx, c.(*net.TCPConn), release)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			in.log.Warn("inbound connection not accepted", "error", err)
			pause.For(ctx, 50*time.Millisecond)
		}
	}
}
