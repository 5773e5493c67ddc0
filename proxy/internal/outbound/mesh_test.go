package outbound

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	metapb "github.com/linkerd/linkerd2-proxy-api/go/meta"
	netpb "github.com/linkerd/linkerd2-proxy-api/go/net"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/drain"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// controls is a destination and a policy service whose answers a test sets.
type controls struct {
	destpb.UnimplementedDestinationServer

	mu        sync.Mutex
	endpoints map[string][]*destpb.WeightedAddr
	profiles  map[string]*destpb.DestinationProfile
	policies  map[string]*outpb.OutboundPolicy
	changed   chan struct{} // closed at a change
	cut       chan struct{} // closed to end all streams
	opened    map[string]int
}

func newControls() *controls {
	return &controls{
		endpoints: map[string][]*destpb.WeightedAddr{}, profiles: map[string]*destpb.DestinationProfile{}, policies: map[string]*outpb.OutboundPolicy{},
		changed: make(chan struct{}), cut: make(chan struct{}), opened: map[string]int{},
	}
}

func (c *controls) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.changed)
	c.changed = make(chan struct{})
}

// service makes a name with a default policy and these endpoints.
func (c *controls) service(authority string, eps ...*destpb.WeightedAddr) {
	c.set(func() {
		c.endpoints[authority] = eps
		if c.policies[authority] == nil {
			c.policies[authority] = servicePolicy(authority)
		}
	})
}

// cutStreams ends every open stream, as a restarting service does.
func (c *controls) cutStreams() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.cut)
	c.cut = make(chan struct{})
}

func (c *controls) streams(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened[what]
}

func (c *controls) Get(r *destpb.GetDestination, s grpc.ServerStreamingServer[destpb.Update]) error {
	sent := map[string]*destpb.WeightedAddr{}
	first := true
	return follow(s.Context(), c, "get "+r.GetPath(), func() ([]*destpb.WeightedAddr, bool) { eps, ok := c.endpoints[r.GetPath()]; return eps, ok }, func(eps []*destpb.WeightedAddr) error {
		now := map[string]*destpb.WeightedAddr{}
		add := &destpb.WeightedAddrSet{MetricLabels: map[string]string{"service": "web"}}
		remove := &destpb.AddrSet{}
		for _, e := range eps {
			key := e.GetAddr().String()
			now[key] = e
			if first || sent[key] != e {
				add.Addrs = append(add.Addrs, e)
			}
		}
		for key, e := range sent {
			if now[key] == nil {
				remove.Addrs = append(remove.Addrs, e.GetAddr())
			}
		}
		sent, first = now, false
		if len(add.GetAddrs()) > 0 {
			if err := s.Send(&destpb.Update{Update: &destpb.Update_Add{Add: add}}); err != nil {
				return err
			}
		}
		if len(remove.GetAddrs()) > 0 {
			return s.Send(&destpb.Update{Update: &destpb.Update_Remove{Remove: remove}})
		}
		return nil
	})
}

func (c *controls) GetProfile(r *destpb.GetDestination, s grpc.ServerStreamingServer[destpb.DestinationProfile]) error {
	return follow(s.Context(), c, "profile "+r.GetPath(), func() (*destpb.DestinationProfile, bool) { p, ok := c.profiles[r.GetPath()]; return p, ok }, s.Send)
}

type policyServer struct {
	outpb.UnimplementedOutboundPoliciesServer
	*controls
}

func (c policyServer) Get(context.Context, *outpb.TrafficSpec) (*outpb.OutboundPolicy, error) {
	return nil, status.Error(codes.Unimplemented, "the proxy watches")
}

func (c policyServer) Watch(r *outpb.TrafficSpec, s grpc.ServerStreamingServer[outpb.OutboundPolicy]) error {
	key := r.GetAuthority()
	if a := r.GetAddr(); a != nil {
		key = fmt.Sprintf("%s:%d", netip.AddrFrom4([4]byte{byte(a.GetIp().GetIpv4() >> 24), byte(a.GetIp().GetIpv4() >> 16), byte(a.GetIp().GetIpv4() >> 8), byte(a.GetIp().GetIpv4())}), a.GetPort())
	}
	return follow(s.Context(), c.controls, "policy "+key, func() (*outpb.OutboundPolicy, bool) { p, ok := c.policies[key]; return p, ok }, s.Send)
}

func follow[T any](ctx context.Context, c *controls, name string, get func() (T, bool), send func(T) error) error {
	c.mu.Lock()
	c.opened[name]++
	c.mu.Unlock()
	for {
		c.mu.Lock()
		value, ok := get()
		changed, cut := c.changed, c.cut
		c.mu.Unlock()
		if !ok {
			return status.Errorf(codes.NotFound, "%s not found", name)
		}
		if err := send(value); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-cut:
			return status.Error(codes.Unavailable, "going away")
		case <-ctx.Done():
			return nil
		}
	}
}

// dial serves the controls and returns a connection to them.
func (c *controls) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	lis := listenLoopback(t)
	srv := grpc.NewServer()
	destpb.RegisterDestinationServer(srv, c)
	outpb.RegisterOutboundPoliciesServer(srv, policyServer{controls: c})
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(srv.Stop)
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func serviceMeta(name string) *metapb.Metadata {
	return &metapb.Metadata{Kind: &metapb.Metadata_Resource{Resource: &metapb.Resource{Group: "core", Kind: "Service", Name: name, Namespace: "shop", Port: 80}}}
}

func defaultMeta(name string) *metapb.Metadata {
	return &metapb.Metadata{Kind: &metapb.Metadata_Default{Default: name}}
}

func balancerOf(authority string) *outpb.Backend {
	return &outpb.Backend{
		Metadata: serviceMeta("web"), Queue: &outpb.Queue{Capacity: 100, FailfastTimeout: durationpb.New(3 * time.Second)},
		Kind: &outpb.Backend_Balancer{Balancer: &outpb.Backend_BalanceP2C{
			Discovery: &outpb.Backend_EndpointDiscovery{Kind: &outpb.Backend_EndpointDiscovery_Dst{Dst: &outpb.Backend_EndpointDiscovery_DestinationGet{Path: authority}}},
			Load:      &outpb.Backend_BalanceP2C_PeakEwma_{PeakEwma: &outpb.Backend_BalanceP2C_PeakEwma{DefaultRtt: durationpb.New(30 * time.Millisecond), Decay: durationpb.New(10 * time.Second)}},
		}},
	}
}

func httpRule(b *outpb.Backend) *outpb.HttpRoute_Rule {
	return &outpb.HttpRoute_Rule{Backends: &outpb.HttpRoute_Distribution{Kind: &outpb.HttpRoute_Distribution_FirstAvailable_{
		FirstAvailable: &outpb.HttpRoute_Distribution_FirstAvailable{Backends: []*outpb.HttpRoute_RouteBackend{{Backend: b}}},
	}}}
}

func opaqueOf(b *outpb.Backend) *outpb.ProxyProtocol_Opaque {
	return &outpb.ProxyProtocol_Opaque{Routes: []*outpb.OpaqueRoute{{Metadata: defaultMeta("opaq"), Rules: []*outpb.OpaqueRoute_Rule{{
		Backends: &outpb.OpaqueRoute_Distribution{Kind: &outpb.OpaqueRoute_Distribution_FirstAvailable_{
			FirstAvailable: &outpb.OpaqueRoute_Distribution_FirstAvailable{Backends: []*outpb.OpaqueRoute_RouteBackend{{Backend: b}}},
		}},
	}}}}}
}

func detectPolicy(b *outpb.Backend, rule *outpb.HttpRoute_Rule, accrual *outpb.FailureAccrual) *outpb.OutboundPolicy {
	routes := []*outpb.HttpRoute{{Metadata: defaultMeta("http"), Rules: []*outpb.HttpRoute_Rule{rule}}}
	return &outpb.OutboundPolicy{Metadata: serviceMeta("web"), Protocol: &outpb.ProxyProtocol{Kind: &outpb.ProxyProtocol_Detect_{Detect: &outpb.ProxyProtocol_Detect{
		Timeout: durationpb.New(10 * time.Second), Opaque: opaqueOf(b),
		Http1: &outpb.ProxyProtocol_Http1{Routes: routes, FailureAccrual: accrual}, Http2: &outpb.ProxyProtocol_Http2{Routes: routes, FailureAccrual: accrual},
	}}}}
}

func servicePolicy(authority string) *outpb.OutboundPolicy {
	b := balancerOf(authority)
	return detectPolicy(b, httpRule(b), nil)
}

func opaquePolicy(authority string) *outpb.OutboundPolicy {
	return &outpb.OutboundPolicy{Metadata: serviceMeta("web"), Protocol: &outpb.ProxyProtocol{Kind: &outpb.ProxyProtocol_Opaque_{Opaque: opaqueOf(balancerOf(authority))}}}
}

func protoAddr(a netip.AddrPort) *netpb.TcpAddress {
	b := a.Addr().As4()
	return &netpb.TcpAddress{Ip: &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv4{Ipv4: uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])}}, Port: uint32(a.Port())}
}

func plain(a netip.AddrPort) *destpb.WeightedAddr {
	return &destpb.WeightedAddr{Addr: protoAddr(a), Weight: 10000}
}

// hinted is an endpoint without identity whose proxy takes HTTP/2.
func hintedH2(a netip.AddrPort) *destpb.WeightedAddr {
	w := plain(a)
	w.ProtocolHint = &destpb.ProtocolHint{Protocol: &destpb.ProtocolHint_H2_{H2: &destpb.ProtocolHint_H2{}}}
	return w
}

// meshed is the endpoint as the destination service describes one in transport-header mode.
func meshed(a netip.AddrPort, id string, inbound uint16) *destpb.WeightedAddr {
	w := hintedH2(a)
	w.TlsIdentity = &destpb.TlsIdentity{
		Strategy:   &destpb.TlsIdentity_DnsLikeIdentity_{DnsLikeIdentity: &destpb.TlsIdentity_DnsLikeIdentity{Name: id}},
		ServerName: &destpb.TlsIdentity_DnsLikeIdentity{Name: id},
	}
	if inbound != 0 {
		w.ProtocolHint.OpaqueTransport = &destpb.ProtocolHint_OpaqueTransport{InboundPort: uint32(inbound)}
	}
	return w
}

// authorityCA signs identities for a test.
type authorityCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newCA(t *testing.T) *authorityCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authorityCA{cert, key, pool}
}

func (ca *authorityCA) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// persona is the proxy's identity in a test.
type persona struct {
	name  string
	cert  tls.Certificate
	roots *x509.CertPool
	ready chan struct{}
}

func newPersona(t *testing.T, ca *authorityCA, name string) *persona {
	t.Helper()
	p := &persona{name: name, cert: ca.issue(t, name), roots: ca.pool, ready: make(chan struct{})}
	close(p.ready)
	return p
}

func (p *persona) Name() string           { return p.name }
func (p *persona) Ready() <-chan struct{} { return p.ready }

func (p *persona) ClientTLS(id, sni string, alpn ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: sni, NextProtos: alpn, Certificates: []tls.Certificate{p.cert},
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			if _, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: p.roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
				return err
			}
			if got := cs.PeerCertificates[0].DNSNames[0]; got != id {
				return fmt.Errorf("certificate of %s does not match TLS identity %s", got, id)
			}
			return nil
		},
	}
}

// rig is an outbound proxy with its control plane.
type rig struct {
	t        *testing.T
	out      *Outbound
	controls *controls
	ca       *authorityCA
	registry *prometheus.Registry
	drain    *drain.Drain
	addr     string
}

func start(t *testing.T, change ...func(*config.Config)) *rig {
	t.Helper()
	ca := newCA(t)
	r := startAs(t, newPersona(t, ca, "client.shop"), change...)
	r.ca = ca
	return r
}

func startAs(t *testing.T, id Identity, change ...func(*config.Config)) *rig {
	t.Helper()
	r := &rig{t: t, controls: newControls(), registry: prometheus.NewPedanticRegistry(), drain: drain.New()}
	cfg := config.Config{
		Outbound: config.Direction{
			Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, DetectTimeout: 10 * time.Second, ConnectTimeout: time.Second,
			DiscoveryIdle: 5 * time.Second, MaxInFlight: 100000, MaxIdle: 100, PoolIdle: 3 * time.Second,
			HTTPQueue: config.Queue{Capacity: 1000, Failfast: 500 * time.Millisecond}, TCPQueue: config.Queue{Capacity: 1000, Failfast: 500 * time.Millisecond},
			Backoff: config.Backoff{Min: 20 * time.Millisecond, Max: 200 * time.Millisecond, Jitter: 0.1},
		},
		HTTP2:       config.Windows{Stream: 65535, Conn: 1 << 20},
		Destination: config.Destination{Svc: config.Svc{Addr: "127.0.0.1:8086"}, Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Suffixes: config.Suffixes{""}},
		Policy:      config.Policy{Svc: config.Svc{Addr: "127.0.0.1:8090"}, Workload: "test:test"},
	}
	for _, f := range change {
		f(&cfg)
	}
	metrics := tell.New(tell.Config{})
	r.registry.MustRegister(metrics)
	conn := r.controls.dial(t)
	out, err := New(Deps{
		Config: cfg, Identity: id, Destination: conn, Policy: conn, Metrics: metrics, Drain: r.drain,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.out, r.addr = out, out.Addrs()[0].String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- out.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v", err)
		}
		out.Close()
	})
	return r
}

// client is an HTTP client that has the proxy in HTTP_PROXY.
func (r *rig) client() *http.Client {
	r.t.Helper()
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: r.addr}), DisableCompression: true}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: 20 * time.Second}
}

func listenLoopback(t *testing.T) net.Listener {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return lis
}

func addrPort(l net.Listener) netip.AddrPort { return l.Addr().(*net.TCPAddr).AddrPort() }

// eventually waits for a condition, looking every 5 ms.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// series reads one metric's value: the sum of its series that have all labels.
func (r *rig) series(name string, labels map[string]string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			for name, value := range labels {
				if have[name] != value {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}
