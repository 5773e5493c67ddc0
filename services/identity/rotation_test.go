package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	pb "github.com/linkerd/linkerd2-proxy-api/go/identity"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weftmesh/weft/services/identity/internal/issue"
	"github.com/weftmesh/weft/services/identity/internal/issue/issuetest"
	"github.com/weftmesh/weft/services/identity/internal/issuer"
	"github.com/weftmesh/weft/services/identity/internal/serve"
	"github.com/weftmesh/weft/services/identity/internal/token"
)

// mesh is the real service, but for the process around it, and proxies that
// do what ours do with certificates: renew, swap, and check each other.
type mesh struct {
	t       *testing.T
	dir     string
	version int
	api     pb.IdentityClient
	tokens  *ecdsa.PrivateKey
	proxies []*fakeProxy

	shaken, failed atomic.Int64
}

func newMesh(t *testing.T, anchors []byte, first *issuetest.Authority) *mesh {
	t.Helper()
	m := &mesh{t: t, dir: t.TempDir(), tokens: issuetest.Key(t)}
	m.bundle(anchors)
	m.issuer(first)
	der, err := x509.MarshalPKIXPublicKey(m.tokens.Public())
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(m.dir, "keys"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	reg := prometheus.NewPedanticRegistry()
	held := issuer.New(issuer.Files{
		Dir: filepath.Join(m.dir, "issuer"), Scheme: "kubernetes.io/tls", Anchors: filepath.Join(m.dir, "anchors", "ca-bundle.crt"),
	}, time.Now, nil, reg)
	if err := held.Load(); err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	pb.RegisterIdentityServer(srv, serve.New(serve.Config{
		Domain:  issue.Domain{ControllerNamespace: "linkerd", TrustDomain: "cluster.local"},
		Issuers: held, Tokens: &token.Local{Path: filepath.Join(m.dir, "keys")}, Now: time.Now,
		Limits: serve.Limits{Rate: 10_000, Burst: 10_000, IdentityRate: 1000},
	}, reg))
	lis := bufconn.Listen(1 << 16)
	m.run(func(ctx context.Context) { _ = held.Run(ctx) })
	m.run(func(ctx context.Context) {
		stop := context.AfterFunc(ctx, srv.Stop)
		defer stop()
		_ = srv.Serve(lis)
	})
	conn, err := grpc.NewClient("passthrough:///identity", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	m.api = pb.NewIdentityClient(conn)
	return m
}

// run runs f until the test ends.
func (m *mesh) run(f func(context.Context)) {
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f(ctx) }()
	m.t.Cleanup(func() { cancel(); <-done })
}

// mount puts files as a kubelet does: a new directory, then a swap of ..data.
func (m *mesh) mount(where string, files map[string][]byte) {
	m.t.Helper()
	m.version++
	dir := filepath.Join(m.dir, where)
	next := fmt.Sprintf("..v%d", m.version)
	if err := os.MkdirAll(filepath.Join(dir, next), 0o700); err != nil {
		m.t.Fatal(err)
	}
	for name, b := range files {
		put(m.t, filepath.Join(dir, next, name), b)
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			m.t.Fatal(err)
		}
	}
	tmp := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(next, tmp); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, "..data")); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mesh) bundle(b []byte) { m.mount("anchors", map[string][]byte{"ca-bundle.crt": b}) }

func (m *mesh) issuer(a *issuetest.Authority) {
	m.mount("issuer", map[string][]byte{"tls.crt": a.PEM(), "tls.key": a.KeyPEM(m.t)})
}

// fakeProxy renews all the time, where a real one would once a day.
type fakeProxy struct {
	name  string
	key   *ecdsa.PrivateKey
	csr   []byte
	token []byte
	addr  string
	trust atomic.Pointer[x509.CertPool]
	cert  atomic.Pointer[tls.Certificate]
}

// check is the rule of spec/proxy.md §12.1: a chain to an anchor, and a name.
func (p *fakeProxy) check(chain []*x509.Certificate, name string, use x509.ExtKeyUsage) error {
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: p.trust.Load(), Intermediates: between, DNSName: name, KeyUsages: []x509.ExtKeyUsage{use},
	})
	return err
}

func (p *fakeProxy) renew(ctx context.Context, api pb.IdentityClient) error {
	got, err := api.Certify(ctx, &pb.CertifyRequest{Identity: p.name, Token: p.token, CertificateSigningRequest: p.csr})
	if err != nil {
		return err
	}
	cert := &tls.Certificate{PrivateKey: p.key, Certificate: append([][]byte{got.GetLeafCertificate()}, got.GetIntermediateCertificates()...)}
	var chain []*x509.Certificate
	for _, der := range cert.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		chain = append(chain, c)
	}
	if err := p.check(chain, p.name, x509.ExtKeyUsageServerAuth); err != nil {
		return err
	}
	cert.Leaf = chain[0]
	p.cert.Store(cert)
	return nil
}

func (p *fakeProxy) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.cert.Load(), nil },
		VerifyConnection: func(cs tls.ConnectionState) error {
			return p.check(cs.PeerCertificates, "", x509.ExtKeyUsageClientAuth)
		},
	}
}

func (p *fakeProxy) client(to string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: to, InsecureSkipVerify: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.cert.Load(), nil },
		VerifyConnection: func(cs tls.ConnectionState) error {
			return p.check(cs.PeerCertificates, to, x509.ExtKeyUsageServerAuth)
		},
	}
}

// join adds a proxy that has its certificate, renews and serves.
func (m *mesh) join(account string, trust *x509.CertPool) {
	m.t.Helper()
	p := &fakeProxy{name: account + ".shop.serviceaccount.identity.linkerd.cluster.local", key: issuetest.Key(m.t)}
	p.csr = issuetest.Request(m.t, issuetest.Plain(p.name), p.key)
	p.trust.Store(trust)
	text, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"aud": token.Audience, "exp": time.Now().Add(time.Hour).Unix(), "sub": "system:serviceaccount:shop:" + account,
	}).SignedString(m.tokens)
	if err != nil {
		m.t.Fatal(err)
	}
	p.token = []byte(text)
	if err := p.renew(m.t.Context(), m.api); err != nil {
		m.t.Fatal(err)
	}
	lis, err := tls.Listen("tcp", "127.0.0.1:0", p.server())
	if err != nil {
		m.t.Fatal(err)
	}
	p.addr = lis.Addr().String()
	m.proxies = append(m.proxies, p)
	m.run(func(ctx context.Context) {
		context.AfterFunc(ctx, func() { _ = lis.Close() })
		var open sync.WaitGroup
		defer open.Wait()
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer func() { _ = conn.Close() }()
				_, _ = conn.Write([]byte{1}) // the handshake comes with it
			})
		}
	})
	m.run(func(ctx context.Context) {
		for tick := time.NewTicker(200 * time.Millisecond); ; {
			if err := p.renew(ctx, m.api); err != nil && ctx.Err() == nil {
				m.t.Errorf("%s: renewal: %v", account, err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return
			}
		}
	})
}

// traffic shakes hands between proxies at random until the test ends.
func (m *mesh) traffic() {
	m.run(func(ctx context.Context) {
		for ctx.Err() == nil {
			from, to := m.proxies[rand.IntN(len(m.proxies))], m.proxies[rand.IntN(len(m.proxies))]
			conn, err := (&tls.Dialer{Config: from.client(to.name)}).DialContext(ctx, "tcp", to.addr)
			if err == nil {
				// In TLS 1.3 the server's verdict on the client comes with its first byte.
				_, err = conn.Read(make([]byte, 1))
				_ = conn.Close()
			}
			if err != nil && ctx.Err() == nil {
				m.failed.Add(1)
				m.t.Errorf("%s to %s: %v", from.name, to.name, err)
			}
			m.shaken.Add(1)
		}
	})
}

// settled waits until each proxy presents a chain through this issuer, and
// until some more hands were shaken after that.
func (m *mesh) settled(a *issuetest.Authority) {
	m.t.Helper()
	until(m.t, "the new issuer", func() bool {
		return !slices.ContainsFunc(m.proxies, func(p *fakeProxy) bool {
			return string(p.cert.Load().Certificate[1]) != string(a.Cert.Raw)
		})
	})
	more := m.shaken.Load() + 50
	until(m.t, "traffic", func() bool { return m.shaken.Load() >= more })
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(3 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("timed out: %s", what)
		}
	}
}

func pool(all ...*issuetest.Authority) *x509.CertPool {
	p := x509.NewCertPool()
	for _, a := range all {
		p.AddCert(a.Cert)
	}
	return p
}

// The issuer is replaced twice, and then the trust anchor in the steps of
// `weft identity rotate`, while proxies shake hands all the time: none fails.
func TestRotationUnderTraffic(t *testing.T) {
	now := time.Now()
	old := issuetest.NewAuthority(t, "old root", nil, now, 100*time.Hour, nil)
	next := issuetest.NewAuthority(t, "new root", nil, now, 100*time.Hour, nil)
	under := func(root *issuetest.Authority, name string) *issuetest.Authority {
		return issuetest.NewAuthority(t, name, root, now, 10*time.Hour, nil)
	}
	first := under(old, "first")
	m := newMesh(t, old.PEM(), first)
	for i := range 8 {
		m.join(fmt.Sprintf("a%d", i), pool(old))
	}
	for range 2 {
		m.traffic()
	}
	m.settled(first)
	for _, name := range []string{"second", "third"} {
		a := under(old, name)
		m.issuer(a)
		m.settled(a)
	}

	// Both anchors; then each proxy is "restarted" and trusts both.
	m.bundle(slices.Concat(next.PEM(), old.PEM()))
	for _, p := range m.proxies {
		p.trust.Store(pool(old, next))
	}
	// The kubelet mounts a Secret and a ConfigMap when it likes: an issuer that
	// comes before its anchor is skipped until the anchor is there.
	a := under(next, "fourth")
	m.issuer(a)
	m.settled(a)
	m.bundle(next.PEM())
	for _, p := range m.proxies {
		p.trust.Store(pool(next))
	}
	m.settled(a)
	if m.failed.Load() > 0 {
		t.Errorf("%d of %d handshakes failed", m.failed.Load(), m.shaken.Load())
	}
	t.Logf("%d handshakes, %d failed", m.shaken.Load(), m.failed.Load())
}
