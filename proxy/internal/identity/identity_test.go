package identity_test

import (
	"context"
	"crypto/fips140"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/header"
	"github.com/weftmesh/weft/proxy/internal/identity"
	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
)

const (
	alice = "alice.ns.serviceaccount.identity.linkerd.cluster.local"
	bob   = "bob.ns.serviceaccount.identity.linkerd.cluster.local"
)

// pipe is a connection over loopback: net.Pipe has no buffer, and both sides of
// a failing handshake may want to write.
func pipe(t *testing.T) (server, client net.Conn) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return server, client
}

// shake does a handshake and returns what each side saw.
func shake(t *testing.T, server, client *tls.Config) (s, c tls.ConnectionState, err error) {
	t.Helper()
	a, b := pipe(t)
	defer a.Close()
	defer b.Close()
	deadline := time.Now().Add(time.Minute)
	_, _ = a.SetDeadline(deadline), b.SetDeadline(deadline)
	srv := tls.Server(a, server)
	failed := make(chan error, 1)
	go func() {
		err := srv.HandshakeContext(t.Context())
		if err == nil {
			_, err = srv.Write([]byte{1})
		} else {
			_ = a.Close()
		}
		failed <- err
	}()
	cli := tls.Client(b, client)
	err = cli.HandshakeContext(t.Context())
	if err == nil { // TLS 1.3: the server's verdict on us comes with its first bytes
		_, err = io.ReadFull(cli, make([]byte, 1))
	}
	if err != nil {
		_ = b.Close()
	}
	if serverErr := <-failed; serverErr != nil {
		return s, c, errors.Join(serverErr, err)
	}
	return srv.ConnectionState(), cli.ConnectionState(), err
}

func TestMutualTLS(t *testing.T) {
	ca := identitytest.New(t)
	a, b := ca.Local(t, alice), ca.Local(t, bob)
	s, c, err := shake(t, b.ServerTLS(), a.ClientTLS(bob, bob, header.ALPN))
	if err != nil {
		t.Fatal(err)
	}
	if got := identity.PeerIdentity(s); got != alice {
		t.Errorf("the server sees %q, want %q", got, alice)
	}
	if got := identity.PeerIdentity(c); got != bob {
		t.Errorf("the client sees %q, want %q", got, bob)
	}
	if c.NegotiatedProtocol != header.ALPN || c.Version != tls.VersionTLS13 {
		t.Errorf("negotiated %q, version %x", c.NegotiatedProtocol, c.Version)
	}
	if c.CurveID != tls.X25519MLKEM768 { // depends on the go line of go.mod
		t.Errorf("key exchange %v, want X25519MLKEM768", c.CurveID)
	}
	if uris := c.PeerCertificates[0].URIs; len(uris) != 1 || uris[0].String() != "spiffe://cluster.local/ns/ns/sa/bob" {
		t.Errorf("URIs %v: this test must be of a leaf as the identity service makes it", uris)
	}
	t.Logf("FIPS mode: %t", fips140.Enabled())
}

func TestNoALPNIsSelectedUnlessOffered(t *testing.T) {
	ca := identitytest.New(t)
	a, b := ca.Local(t, alice), ca.Local(t, bob)
	for _, offer := range [][]string{nil, {"h2"}} {
		_, c, err := shake(t, b.ServerTLS(), a.ClientTLS(bob, bob, offer...))
		if err != nil || c.NegotiatedProtocol != "" {
			t.Errorf("offering %v: %q, %v", offer, c.NegotiatedProtocol, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	ca, other := identitytest.New(t), identitytest.New(t)
	a, b := ca.Local(t, alice), ca.Local(t, bob)
	stranger := other.Local(t, alice)
	cert := func(c tls.Certificate) *tls.Config {
		return &tls.Config{InsecureSkipVerify: true, ServerName: bob, Certificates: []tls.Certificate{c}}
	}
	serverOf := func(c tls.Certificate) *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{c}}
	}
	old := time.Now().Add(-time.Minute)
	tests := []struct {
		name           string
		server, client *tls.Config
		want           string
	}{
		{"server with another identity", b.ServerTLS(), a.ClientTLS(alice, bob), "does not match"},
		{"server of another root", b.ServerTLS(), stranger.ClientTLS(bob, bob), "verifying the peer"},
		{"client of another root", b.ServerTLS(), cert(other.Certificate(t, alice, time.Now().Add(time.Hour))), "verifying the peer"},
		{"client with an expired certificate", b.ServerTLS(), cert(ca.Certificate(t, alice, old)), "expired"},
		{"server with an expired certificate", serverOf(ca.Certificate(t, bob, old)), a.ClientTLS(bob, bob), "expired"},
		{"TLS 1.2", b.ServerTLS(), &tls.Config{InsecureSkipVerify: true, ServerName: bob, MaxVersion: tls.VersionTLS12}, "version"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := shake(t, tt.server, tt.client)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want one about %q", err, tt.want)
			}
		})
	}
}

func TestClientWithoutCertificateHasNoIdentity(t *testing.T) {
	ca := identitytest.New(t)
	b := ca.Local(t, bob)
	s, _, err := shake(t, b.ServerTLS(), &tls.Config{InsecureSkipVerify: true, ServerName: bob})
	if err != nil || identity.PeerIdentity(s) != "" {
		t.Errorf("identity %q, %v", identity.PeerIdentity(s), err)
	}
}

func TestNothingBeforeTheFirstCertificate(t *testing.T) {
	ca := identitytest.New(t)
	cfg := ca.Config(t, alice)
	l, err := identity.New(identity.Deps{Config: cfg, Dial: identitytest.Dial(cfg), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Ready():
		t.Error("ready without a certificate")
	default:
	}
	if _, _, err := shake(t, l.ServerTLS(), &tls.Config{InsecureSkipVerify: true, ServerName: alice}); err == nil {
		t.Error("a handshake without a certificate")
	}
}

func TestRenewalSwapsTheCertificate(t *testing.T) {
	ca := identitytest.New(t)
	ca.Life(2 * time.Second)
	b := ca.Local(t, bob)
	cfg := ca.Config(t, alice)
	a, err := identity.New(identity.Deps{Config: cfg, Dial: identitytest.Dial(cfg), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = a.Run(ctx) }()
	<-a.Ready()
	first := a.Expires()
	eventually(t, "a later certificate", func() bool { return a.Expires().After(first) })

	// The service fails for a while: the old certificate is used, and renewed later.
	ca.Fail(errors.New("no issuer"))
	calls := ca.Calls()
	eventually(t, "more attempts", func() bool { return ca.Calls() > calls+2 })
	ca.Life(time.Hour)
	ca.Fail(nil)
	soon := time.Now().Add(30 * time.Minute)
	eventually(t, "recovery", func() bool { return a.Expires().After(soon) && b.Expires().After(soon) })
	if _, _, err := shake(t, b.ServerTLS(), a.ClientTLS(bob, bob)); err != nil {
		t.Errorf("handshaking after renewals: %v", err)
	}
}

// An expired certificate is still shown, and refused by others; the proxy stays
// ready, and is itself again when the service is.
func TestExpiry(t *testing.T) {
	ca := identitytest.New(t)
	b := ca.Local(t, bob)
	ca.Life(2 * time.Second)
	cfg := ca.Config(t, alice)
	reg := prometheus.NewPedanticRegistry()
	a, err := identity.New(identity.Deps{Config: cfg, Dial: identitytest.Dial(cfg), Log: slog.New(slog.DiscardHandler), Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = a.Run(ctx) }()
	<-a.Ready()
	ca.Fail(errors.New("no issuer"))
	eventually(t, "the end of the certificate", func() bool { return time.Now().After(a.Expires()) })
	for name, pair := range map[string][2]*identity.Local{"as a client": {b, a}, "as a server": {a, b}} {
		if _, _, err := shake(t, pair[0].ServerTLS(), pair[1].ClientTLS(pair[0].Name(), pair[0].Name())); err == nil || !strings.Contains(err.Error(), "expired") {
			t.Errorf("%s: %v, want a refusal of the expired certificate", name, err)
		}
	}
	select {
	case <-a.Ready():
	default:
		t.Error("no longer ready")
	}
	ca.Life(time.Hour)
	ca.Fail(nil)
	eventually(t, "a new certificate", func() bool { return time.Now().Before(a.Expires()) })
	if _, _, err := shake(t, b.ServerTLS(), a.ClientTLS(bob, bob)); err != nil {
		t.Error(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		switch f.GetName() {
		case "control_identity_cert_expiration_timestamp_seconds":
			if got := f.GetMetric()[0].GetGauge().GetValue(); got != float64(a.Expires().Unix()) {
				t.Errorf("expires at %v by the metrics, want %v", got, a.Expires().Unix())
			}
		case "control_identity_cert_refreshes_total":
			if n := len(f.GetMetric()); n != 2 { // ok and error
				t.Errorf("%d results counted, want 2", n)
			}
		}
	}
	if len(families) != 3 {
		t.Errorf("%d metrics, want 3", len(families))
	}
}

// The handshakes again with GODEBUG=fips140=on, in a process of their own.
func TestFIPS(t *testing.T) {
	if fips140.Enabled() {
		t.Skip("this is the inner run")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^(TestMutualTLS|TestRefusals)$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), "GODEBUG=fips140=on")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"--- PASS: TestMutualTLS ", "--- PASS: TestRefusals ", "FIPS mode: true"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestTokenIsReadAgain(t *testing.T) {
	ca := identitytest.New(t)
	ca.Life(2 * time.Second)
	cfg := ca.Config(t, alice)
	l, err := identity.New(identity.Deps{Config: cfg, Dial: identitytest.Dial(cfg), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = l.Run(ctx) }()
	<-l.Ready()
	if err := os.WriteFile(cfg.TokenFile, []byte("rotated"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new token", func() bool {
		tokens := ca.Tokens()
		return tokens[0] == "token of "+alice && tokens[len(tokens)-1] == "rotated"
	})
}

func TestKeyIsMadeOnceAndKept(t *testing.T) {
	ca := identitytest.New(t)
	cfg := ca.Config(t, alice)
	read := func() string {
		if _, err := identity.New(identity.Deps{Config: cfg, Dial: identitytest.Dial(cfg), Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"key.p8", "csr.der"} {
			info, err := os.Stat(filepath.Join(cfg.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v", name, info.Mode())
			}
		}
		key, err := os.ReadFile(filepath.Join(cfg.Dir, "key.p8"))
		if err != nil {
			t.Fatal(err)
		}
		return string(key)
	}
	if first, second := read(), read(); first != second {
		t.Error("a new key was made over the old one")
	}
	// Killed between the two files: the key is kept, the request made for it.
	first := read()
	if err := os.Remove(filepath.Join(cfg.Dir, "csr.der")); err != nil {
		t.Fatal(err)
	}
	if read() != first {
		t.Error("a new key was made where only the request was missing")
	}
	if err := os.Remove(filepath.Join(cfg.Dir, "key.p8")); err != nil {
		t.Fatal(err)
	}
	if _, err := identity.New(identity.Deps{Config: cfg}); !errors.Is(err, identity.ErrDocuments) {
		t.Errorf("a signing request without its key: %v", err)
	}
}

func TestDocumentsThatAreNotThere(t *testing.T) {
	ca := identitytest.New(t)
	for _, tt := range []struct {
		name  string
		spoil func(config.Identity) error
		want  bool // ErrDocuments
	}{
		{"no token", func(c config.Identity) error { return os.Remove(c.TokenFile) }, true},
		{"an empty token", func(c config.Identity) error { return os.WriteFile(c.TokenFile, []byte("\n"), 0o600) }, true},
		{"an empty key", func(c config.Identity) error { return os.WriteFile(filepath.Join(c.Dir, "key.p8"), nil, 0o600) }, true},
		{"an empty request", func(c config.Identity) error { return os.WriteFile(filepath.Join(c.Dir, "csr.der"), nil, 0o600) }, true},
		{"a key that is none", func(c config.Identity) error {
			return os.WriteFile(filepath.Join(c.Dir, "key.p8"), []byte("key"), 0o600)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := ca.Config(t, alice)
			if _, err := identity.New(identity.Deps{Config: cfg}); err != nil {
				t.Fatal(err)
			}
			if err := tt.spoil(cfg); err != nil {
				t.Fatal(err)
			}
			if _, err := identity.New(identity.Deps{Config: cfg}); err == nil || errors.Is(err, identity.ErrDocuments) != tt.want {
				t.Errorf("New() = %v, want ErrDocuments: %v", err, tt.want)
			}
		})
	}
}

func TestAnchorsKeepTheGoodOnes(t *testing.T) {
	ca := identitytest.New(t)
	junk := "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"
	crlf := strings.ReplaceAll(ca.Anchors(), "\n", "\r\n")
	got, err := identity.ParseAnchors(crlf + junk + ca.Anchors() + "\n\n")
	if len(got) != 1 || err == nil {
		t.Errorf("%d anchors, %v; want 1 and a complaint", len(got), err)
	}
	for _, bad := range []string{"", junk, "hello"} {
		if got, err := identity.ParseAnchors(bad); len(got) > 0 || err == nil {
			t.Errorf("ParseAnchors(%q) = %d anchors, %v", bad, len(got), err)
		}
	}
}

// eventually polls until ok holds, for at most a minute.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("no %s", what)
		}
	}
}
