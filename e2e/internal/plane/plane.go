// Package plane is a control plane in the test's own process: real proxies ask it,
// and it says what the test has set, at once. Certificates are real ones, of an
// authority that is made for the test.
package plane

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	identitypb "github.com/linkerd/linkerd2-proxy-api/go/identity"
	inpb "github.com/linkerd/linkerd2-proxy-api/go/inbound"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// A Plane is a control plane. Its methods may be called at any time.
type Plane struct {
	Addr string // of all its services
	*authority

	mu       sync.Mutex
	changed  chan struct{} // closed at a change
	cut      chan struct{} // closed to end all streams
	targets  map[string][]Endpoint
	policies map[string]*outpb.OutboundPolicy
	inbound  *inpb.Server
}

// An Endpoint is where a service is. One with an identity is spoken to over mTLS,
// at its proxy's inbound port.
type Endpoint struct {
	Addr     netip.AddrPort
	Identity string
}

// New starts a control plane, which the test ends.
func New(t testing.TB) *Plane {
	t.Helper()
	p := &Plane{
		authority: newAuthority(t), changed: make(chan struct{}), cut: make(chan struct{}),
		targets: map[string][]Endpoint{}, policies: map[string]*outpb.OutboundPolicy{}, inbound: Open(),
	}
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.Addr = lis.Addr().String()
	// As Weft's own services do: without it, a proxy that looks after its connection is sent away.
	srv := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}))
	destpb.RegisterDestinationServer(srv, destination{plane: p})
	outpb.RegisterOutboundPoliciesServer(srv, outbound{plane: p})
	inpb.RegisterInboundServerPoliciesServer(srv, inbound{plane: p})
	identitypb.RegisterIdentityServer(srv, p.authority)
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(srv.Stop)
	return p
}

// Endpoints sets where a name with its port is. A name that has no policy gets the
// usual one.
func (p *Plane) Endpoints(name string, all ...Endpoint) {
	p.set(func() {
		p.targets[name] = all
		if p.policies[name] == nil {
			p.policies[name] = Policy(name, nil)
		}
	})
}

// Policy sets how a name is reached.
func (p *Plane) Policy(name string, policy *outpb.OutboundPolicy) {
	p.set(func() { p.policies[name] = policy })
}

// Inbound sets what all ports of all proxies accept.
func (p *Plane) Inbound(s *inpb.Server) { p.set(func() { p.inbound = s }) }

func (p *Plane) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// Cut ends every stream, as a control plane that restarts does.
func (p *Plane) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.cut)
	p.cut = make(chan struct{})
}

// follow sends a value now and at every change.
func follow[T any](ctx context.Context, p *Plane, what string, get func() (T, bool), send func(T) error) error {
	for {
		p.mu.Lock()
		value, ok := get()
		changed, cut := p.changed, p.cut
		p.mu.Unlock()
		if !ok {
			return status.Errorf(codes.NotFound, "%s is not known", what)
		}
		if err := send(value); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-cut:
			return status.Error(codes.Unavailable, "this server restarts")
		case <-ctx.Done():
			return nil
		}
	}
}

type destination struct {
	destpb.UnimplementedDestinationServer
	plane *Plane
}

func (d destination) Get(r *destpb.GetDestination, s grpc.ServerStreamingServer[destpb.Update]) error {
	sent := map[netip.AddrPort]Endpoint{}
	first := true
	get := func() ([]Endpoint, bool) { all, ok := d.plane.targets[r.GetPath()]; return all, ok }
	return follow(s.Context(), d.plane, r.GetPath(), get, func(all []Endpoint) error {
		now := map[netip.AddrPort]Endpoint{}
		add, remove := &destpb.WeightedAddrSet{}, &destpb.AddrSet{}
		for _, e := range all {
			now[e.Addr] = e
			if had, ok := sent[e.Addr]; first || !ok || had != e {
				add.Addrs = append(add.Addrs, e.proto())
			}
		}
		for _, addr := range slices.Collect(maps.Keys(sent)) {
			if _, ok := now[addr]; !ok {
				remove.Addrs = append(remove.Addrs, protoAddr(addr))
			}
		}
		sent, first = now, false
		if len(add.GetAddrs()) > 0 {
			if err := s.Send(&destpb.Update{Update: &destpb.Update_Add{Add: add}}); err != nil {
				return fmt.Errorf("sending endpoints: %w", err)
			}
		}
		if len(remove.GetAddrs()) > 0 {
			if err := s.Send(&destpb.Update{Update: &destpb.Update_Remove{Remove: remove}}); err != nil {
				return fmt.Errorf("sending endpoints: %w", err)
			}
		}
		return nil
	})
}

func (d destination) GetProfile(_ *destpb.GetDestination, s grpc.ServerStreamingServer[destpb.DestinationProfile]) error {
	if err := s.Send(&destpb.DestinationProfile{}); err != nil {
		return fmt.Errorf("sending a profile: %w", err)
	}
	<-s.Context().Done()
	return nil
}

type outbound struct {
	outpb.UnimplementedOutboundPoliciesServer
	plane *Plane
}

func (o outbound) Watch(r *outpb.TrafficSpec, s grpc.ServerStreamingServer[outpb.OutboundPolicy]) error {
	name := r.GetAuthority()
	return follow(s.Context(), o.plane, name, func() (*outpb.OutboundPolicy, bool) { v, ok := o.plane.policies[name]; return v, ok }, s.Send)
}

type inbound struct {
	inpb.UnimplementedInboundServerPoliciesServer
	plane *Plane
}

func (i inbound) WatchPort(_ *inpb.PortSpec, s grpc.ServerStreamingServer[inpb.Server]) error {
	return follow(s.Context(), i.plane, "the port", func() (*inpb.Server, bool) { return i.plane.inbound, true }, s.Send)
}
