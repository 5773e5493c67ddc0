package inbound

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"
	netpb "github.com/linkerd/linkerd2-proxy-api/go/net"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/drain"
	"github.com/weftmesh/weft/proxy/internal/header"
	"github.com/weftmesh/weft/proxy/internal/identity"
	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

const (
	server = "server.ns.serviceaccount.identity.linkerd.cluster.local"
	alice  = "alice.ns.serviceaccount.identity.linkerd.cluster.local"
	mallet = "mallet.ns.serviceaccount.identity.linkerd.cluster.local"
)

// policyServer answers WatchPort with what it is told to.
type policyServer struct {
	pb.UnimplementedInboundServerPoliciesServer

	mu      sync.Mutex
	ports   map[uint32]*pb.Server
	changed chan struct{}
	watches map[uint32]int
}

func newPolicyServer() *policyServer {
	return &policyServer{ports: map[uint32]*pb.Server{}, changed: make(chan struct{}), watches: map[uint32]int{}}
}

func (p *policyServer) set(port uint16, s *pb.Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports[uint32(port)] = s
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *policyServer) WatchPort(spec *pb.PortSpec, out grpc.ServerStreamingServer[pb.Server]) error {
	if spec.GetWorkload() != "workload" {
		return status.Error(codes.InvalidArgument, "unknown workload")
	}
	p.mu.Lock()
	p.watches[spec.GetPort()]++
	p.mu.Unlock()
	var sent *pb.Server
	for {
		p.mu.Lock()
		s, changed := p.ports[spec.GetPort()], p.changed
		p.mu.Unlock()
		if s != nil && s != sent {
			if err := out.Send(s); err != nil {
				return err
			}
			sent = s
		}
		select {
		case <-changed:
		case <-out.Context().Done():
			return nil
		}
	}
}

// world is a running inbound side with everything around it.
type world struct {
	t       *testing.T
	ca      *identitytest.CA
	in      *Inbound
	drain   *drain.Drain
	policy  *policyServer
	reg     *prometheus.Registry
	stopped chan struct{}
	cancel  context.CancelFunc
}

type option func(*config.Config)

func newWorld(t *testing.T, options ...option) *world {
	t.Helper()
	w := &world{t: t, ca: identitytest.New(t), drain: drain.New(), policy: newPolicyServer(), reg: prometheus.NewRegistry(), stopped: make(chan struct{})}
	conn := w.servePolicy()
	cfg := config.Config{
		Inbound: config.Direction{
			Listen:        []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
			DetectTimeout: 2 * time.Second, ConnectTimeout: time.Second,
			DiscoveryIdle: 50 * time.Millisecond, MaxInFlight: 1000, MaxIdle: 10, PoolIdle: time.Second,
		},
		Outbound:    config.Direction{Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:4140")}},
		AdminListen: netip.MustParseAddrPort("127.0.0.1:4191"),
		Policy:      config.Policy{Svc: config.Svc{Addr: "127.0.0.1:1"}, Workload: "workload", Default: "deny"},
	}
	for _, o := range options {
		o(&cfg)
	}
	metrics := tell.New(tell.Config{})
	w.reg.MustRegister(metrics)
	in, err := New(Deps{Config: cfg, Identity: w.ca.Local(t, server), Policy: conn, Metrics: metrics, Drain: w.drain, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w.in = in
	in.policies.first = 0 // tests that set a policy wait for it themselves
	return w
}

func (w *world) servePolicy() *grpc.ClientConn {
	l, err := new(net.ListenConfig).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	srv := grpc.NewServer()
	pb.RegisterInboundServerPoliciesServer(srv, w.policy)
	go func() { _ = srv.Serve(l) }()
	w.t.Cleanup(srv.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// run starts accepting.
func (w *world) run() *world {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	w.cancel = cancel
	go func() { defer close(w.stopped); _ = w.in.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-w.stopped })
	return w
}

// redirectTo makes every connection look as if the kernel had taken it from its
// way to the address.
func (w *world) redirectTo(target netip.AddrPort) *world {
	w.in.origDst = func(*net.TCPConn) (netip.AddrPort, bool) { return target, true }
	return w
}

// allow sets the port's policy and waits until it is in force.
func (w *world) allow(port uint16, s *pb.Server) {
	w.t.Helper()
	p, release, err := w.in.policies.get(port)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(release) // so that it is not forgotten before it is used
	_, next := p.current()
	w.policy.set(port, s)
	select {
	case <-next:
	case <-time.After(time.Minute):
		w.t.Fatal("the policy did not arrive")
	}
}

// direct opens a mesh connection with a transport header, as a peer's proxy does.
func (w *world) direct(client *identity.Local, h header.Header) net.Conn {
	w.t.Helper()
	c, err := w.tls(client, header.ALPN)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := header.Write(c, h); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// meter sums a family's series whose labels include the wanted ones.
func (w *world) meter(name string, want ...string) float64 {
	w.t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			for _, label := range want {
				if !strings.Contains(fmt.Sprint(m.GetLabel()), label) {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// app is the application: it serves on loopback until the test ends.
func app(t *testing.T, h http.Handler) netip.AddrPort {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: h, Protocols: p, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// Policies of the control plane.

func detectServer(authz ...*pb.Authz) *pb.Server {
	return &pb.Server{
		Protocol: &pb.ProxyProtocol{Kind: &pb.ProxyProtocol_Detect_{Detect: &pb.ProxyProtocol_Detect{
			Timeout: durationpb.New(2 * time.Second),
		}}},
		Authorizations: authz,
		Labels:         map[string]string{"group": "policy.linkerd.io", "kind": "server", "name": "web"},
	}
}

func opaqueServer(authz ...*pb.Authz) *pb.Server {
	s := detectServer(authz...)
	s.Protocol = &pb.ProxyProtocol{Kind: &pb.ProxyProtocol_Opaque_{Opaque: &pb.ProxyProtocol_Opaque{}}}
	return s
}

func everyNetwork() []*pb.Network {
	return []*pb.Network{
		{Net: &netpb.IPNetwork{Ip: &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv4{}}}},
		{Net: &netpb.IPNetwork{Ip: &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv6{Ipv6: &netpb.IPv6{}}}}},
	}
}

func onlyIdentity(id string) *pb.Authz {
	return &pb.Authz{
		Networks: everyNetwork(),
		Labels:   map[string]string{"group": "policy.linkerd.io", "kind": "authorizationpolicy", "name": "friends"},
		Authentication: &pb.Authn{Permit: &pb.Authn_MeshTLS{MeshTLS: &pb.Authn_PermitMeshTLS{
			Clients: &pb.Authn_PermitMeshTLS_Identities{Identities: &pb.Authn_PermitMeshTLS_PermitClientIdentities{
				Identities: []*pb.Identity{{Name: id}},
			}},
		}}},
	}
}

func anybody() *pb.Authz {
	return &pb.Authz{
		Networks:       everyNetwork(),
		Labels:         map[string]string{"kind": "authorizationpolicy", "name": "anybody"},
		Authentication: &pb.Authn{Permit: &pb.Authn_Unauthenticated{Unauthenticated: &pb.Authn_PermitUnauthenticated{}}},
	}
}

// eventually polls until ok holds, for at most ten seconds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		}
	}
}
