// Package identitytest is a certificate authority for tests: certificates of any
// age for any name, and an identity service on loopback that issues them.
package identitytest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/identity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/identity"
)

// CA issues certificates under one root.
type CA struct {
	pb.UnimplementedIdentityServer

	key  *ecdsa.PrivateKey
	cert *x509.Certificate

	mu     sync.Mutex
	life   time.Duration
	fail   error
	calls  int
	tokens []string
	serial int64
}

// New makes a CA whose service issues certificates that live an hour.
func New(t testing.TB) *CA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test root"},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &CA{key: key, cert: cert, life: time.Hour, serial: 1}
}

// Anchors is the root as PEM text.
func (c *CA) Anchors() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw}))
}

// Life sets how long the service's next certificates live. Certificates count in
// seconds: less than two make some that are born expired.
func (c *CA) Life(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.life = d }

// Fail makes the service answer with err; nil makes it work again.
func (c *CA) Fail(err error) { c.mu.Lock(); defer c.mu.Unlock(); c.fail = err }

// Calls is how often the service was asked.
func (c *CA) Calls() int { c.mu.Lock(); defer c.mu.Unlock(); return c.calls }

// Tokens are the tokens the service was shown.
func (c *CA) Tokens() []string { c.mu.Lock(); defer c.mu.Unlock(); return c.tokens }

// Sign issues a certificate for the key, valid from now-hour to notAfter. As the
// identity service does, it adds the SPIFFE ID of a service account.
func (c *CA) Sign(pub any, notAfter time.Time, names ...string) (*x509.Certificate, error) {
	c.mu.Lock()
	c.serial++
	serial := c.serial
	c.mu.Unlock()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: dns(names), URIs: spiffe(names),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: notAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, c.cert, pub, c.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// dns are the names that are no URIs.
func dns(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.HasPrefix(n, "spiffe://") })
}

// spiffe reads SA.NS.serviceaccount.identity.CONTROL-NS.TRUST-DOMAIN, and takes
// URIs as they are.
func spiffe(names []string) []*url.URL {
	var out []*url.URL
	for _, name := range names {
		if u, err := url.Parse(name); err == nil && u.Scheme == "spiffe" {
			out = append(out, u)
			continue
		}
		part := strings.SplitN(name, ".", 6)
		if len(part) == 6 && part[2] == "serviceaccount" && part[3] == "identity" {
			out = append(out, &url.URL{Scheme: "spiffe", Host: part[5], Path: "/ns/" + part[1] + "/sa/" + part[0]})
		}
	}
	return out
}

// Certificate is a key and a certificate for the name.
func (c *CA) Certificate(t testing.TB, name string, notAfter time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := c.Sign(key.Public(), notAfter, name)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

// Certify is the identity service's method.
func (c *CA) Certify(_ context.Context, req *pb.CertifyRequest) (*pb.CertifyResponse, error) {
	c.mu.Lock()
	c.calls++
	c.tokens = append(c.tokens, string(req.GetToken()))
	life, fail := c.life, c.fail
	c.mu.Unlock()
	if fail != nil {
		return nil, fail
	}
	csr, err := x509.ParseCertificateRequest(req.GetCertificateSigningRequest())
	if err != nil {
		return nil, err
	}
	if len(csr.DNSNames) != 1 || csr.DNSNames[0] != req.GetIdentity() {
		return nil, fmt.Errorf("the request is for %v, not for %s", csr.DNSNames, req.GetIdentity())
	}
	until := time.Now().Add(life)
	cert, err := c.Sign(csr.PublicKey, until, req.GetIdentity())
	if err != nil {
		return nil, err
	}
	return &pb.CertifyResponse{LeafCertificate: cert.Raw, ValidUntil: timestamppb.New(until)}, nil
}

// Serve runs the service on loopback and returns its address.
func (c *CA) Serve(t testing.TB) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	pb.RegisterIdentityServer(srv, c)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(srv.Stop)
	return l.Addr().String()
}

// Config is an identity configuration for the name, with a key directory and a
// token of its own.
func (c *CA) Config(t testing.TB, name string) config.Identity {
	t.Helper()
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("token of "+name), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Identity{
		Svc: config.Svc{Addr: c.Serve(t)}, Name: name, ServerName: name,
		Dir: filepath.Join(dir, "id"), Anchors: c.Anchors(), TokenFile: token,
		MinRefresh: 10 * time.Millisecond, MaxRefresh: 24 * time.Hour,
	}
}

// Dial connects to the configured service in plaintext.
func Dial(cfg config.Identity) func(context.Context, *identity.Local) (*grpc.ClientConn, error) {
	return func(context.Context, *identity.Local) (*grpc.ClientConn, error) {
		return grpc.NewClient(cfg.Svc.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
}

// Local is a running identity that has its certificate.
func (c *CA) Local(t testing.TB, name string) *identity.Local {
	t.Helper()
	cfg := c.Config(t, name)
	l, err := identity.New(identity.Deps{Config: cfg, Dial: Dial(cfg), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = l.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	select {
	case <-l.Ready():
	case <-time.After(10 * time.Second):
		t.Fatalf("no certificate for %s", name)
	}
	return l
}
