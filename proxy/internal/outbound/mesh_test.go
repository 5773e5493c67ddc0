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
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/drain"
	"github.com/weftmesh/weft/proxy/internal/tap"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

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
	tap      *tap.Registry
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
	r := &rig{t: t, controls: newControls(), registry: prometheus.NewPedanticRegistry(), drain: drain.New(), tap: tap.New()}
	cfg := config.Config{
		Outbound: config.Direction{
			Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, DetectTimeout: 10 * time.Second, ConnectTimeout: time.Second,
			DiscoveryIdle: 5 * time.Second, MaxInFlight: 100000, MaxIdle: 100, PoolIdle: 3 * time.Second,
			HTTPQueue: config.Queue{Capacity: 1000, Failfast: failfast}, TCPQueue: config.Queue{Capacity: 1000, Failfast: failfast},
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
		Tap: r.tap, Log: slog.New(slog.DiscardHandler),
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
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: time.Minute}
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

// acceptEach serves each connection with handle, which gets it until its end.
func acceptEach(t *testing.T, handle func(net.Conn)) netip.AddrPort {
	t.Helper()
	lis := listenLoopback(t)
	t.Cleanup(func() { _ = lis.Close() })
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				handle(c)
			}()
		}
	}()
	return addrPort(lis)
}

// failfast is how long a request waits for an endpoint. On a busy machine a
// connection to a good one may take a second.
const failfast = 3 * time.Second

// eventually waits for a condition, looking every 5 ms.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
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
