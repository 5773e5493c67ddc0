package identity_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/identity"
	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
)

const mine, another = "spiffe://td/ns/shop/sa/web", "spiffe://td/ns/shop/sa/books"

// agent is SPIRE's.
type agent struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	t  *testing.T
	ca *identitytest.CA

	mu      sync.Mutex
	calls   int
	fail    []error // of the first calls
	renewed chan struct{}
}

func (a *agent) svid(id string) *workload.X509SVID {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Error(err)
	}
	cert, err := a.ca.Sign(key.Public(), time.Now().Add(time.Hour), id)
	if err != nil {
		a.t.Error(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Error(err)
	}
	root, _ := pem.Decode([]byte(a.ca.Anchors()))
	return &workload.X509SVID{SpiffeId: id, X509Svid: cert.Raw, X509SvidKey: der, Bundle: root.Bytes}
}

func (a *agent) FetchX509SVID(_ *workload.X509SVIDRequest, out grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	md, _ := metadata.FromIncomingContext(out.Context())
	if len(md.Get("workload.spiffe.io")) != 1 {
		return status.Error(codes.InvalidArgument, "security header missing")
	}
	a.mu.Lock()
	n := a.calls
	a.calls++
	a.mu.Unlock()
	if n < len(a.fail) {
		return a.fail[n]
	}
	for {
		if err := out.Send(&workload.X509SVIDResponse{Svids: []*workload.X509SVID{a.svid(another), a.svid(mine)}}); err != nil {
			return err
		}
		select {
		case <-a.renewed:
		case <-out.Context().Done():
			return nil
		}
	}
}

func serveSPIRE(t *testing.T, a *agent) *identity.Local {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	lis, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(srv, a)
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(srv.Stop)
	l, err := identity.New(identity.Deps{
		Config: config.Identity{
			Name: mine, ServerName: "web.shop.example",
			SPIRE: config.SPIRE{Socket: socket, Backoff: config.Backoff{Min: time.Millisecond, Max: 10 * time.Millisecond}},
		},
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = l.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return l
}

func TestSPIRE(t *testing.T) {
	ca := identitytest.New(t)
	a := &agent{t: t, ca: ca, renewed: make(chan struct{}), fail: []error{status.Error(codes.PermissionDenied, "no identity issued"), nil}}
	l := serveSPIRE(t, a)
	wait(t, l.Ready())
	if l.Name() != mine || l.ServerName() != "web.shop.example" {
		t.Errorf("%s, %s", l.Name(), l.ServerName())
	}
	// A peer with a certificate of the same authority: each proves itself.
	peer := ca.Local(t, bob)
	s, c, err := shake(t, l.ServerTLS(), peer.ClientTLS(mine, "web.shop.example"))
	if err != nil {
		t.Fatal(err)
	}
	if got := identity.PeerIdentity(s); got != bob {
		t.Errorf("the client is %q", got)
	}
	if got := identity.PeerIdentity(c); got != mine {
		t.Errorf("the server is %q", got)
	}
	before := c.PeerCertificates[0]
	a.renewed <- struct{}{}
	eventually(t, "another certificate", func() bool {
		cert, err := l.ClientTLS("x", "x").GetClientCertificate(nil)
		return err == nil && !cert.Leaf.Equal(before)
	})
}

func TestSPIRERefusesForGood(t *testing.T) {
	bad := status.Error(codes.InvalidArgument, "no")
	a := &agent{t: t, ca: identitytest.New(t), renewed: make(chan struct{}), fail: []error{status.Error(codes.Unavailable, "later"), bad, bad, bad, bad}}
	l := serveSPIRE(t, a)
	calls := func() int { a.mu.Lock(); defer a.mu.Unlock(); return a.calls }
	eventually(t, "asked again after an outage", func() bool { return calls() == 2 })
	for range 20 { // and then no more
		if n := calls(); n != 2 {
			t.Fatalf("asked %d times, want 2", n)
		}
		<-time.After(2 * time.Millisecond)
	}
	select {
	case <-l.Ready():
		t.Error("ready")
	default:
	}
}

func wait(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatal("not in time")
	}
}
