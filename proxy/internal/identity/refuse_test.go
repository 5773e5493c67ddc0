package identity_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/proxy/internal/identity"
	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
)

// counted is an identity whose metrics can be read.
func counted(t *testing.T, ca *identitytest.CA, name string) (*identity.Local, func(peer, rule string) float64) {
	t.Helper()
	cfg, reg := ca.Config(t, name), prometheus.NewRegistry()
	l, err := identity.New(identity.Deps{Config: cfg, Dial: identitytest.Dial(cfg), Log: slog.New(slog.DiscardHandler), Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = l.Run(t.Context()) }()
	wait(t, l.Ready())
	return l, func(peer, rule string) float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "weft_identity_peers_refused_total" && m.GetLabel()[0].GetValue() == peer && m.GetLabel()[1].GetValue() == rule {
					return m.GetCounter().GetValue()
				}
			}
		}
		return 0
	}
}

func TestRefusedPeersAreCountedByRule(t *testing.T) {
	ca, other := identitytest.New(t), identitytest.New(t)
	a, refused := counted(t, ca, alice)
	with := func(c tls.Certificate) *tls.Config {
		return &tls.Config{InsecureSkipVerify: true, ServerName: alice, Certificates: []tls.Certificate{c}}
	}
	serves := func(c tls.Certificate) *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{c}}
	}
	key, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Skip("this build makes no weak keys:", err)
	}
	cert, err := ca.Sign(key.Public(), time.Now().Add(time.Hour), bob)
	if err != nil {
		t.Fatal(err)
	}
	weak := tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
	hour, past := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	for _, tt := range []struct {
		peer, rule     string
		server, client *tls.Config
	}{
		{"client", "untrusted", a.ServerTLS(), with(other.Certificate(t, bob, hour))},
		{"client", "expired", a.ServerTLS(), with(ca.Certificate(t, bob, past))},
		{"client", "weak_key", a.ServerTLS(), with(weak)},
		{"server", "untrusted", serves(other.Certificate(t, bob, hour)), a.ClientTLS(bob, bob)},
		{"server", "expired", serves(ca.Certificate(t, bob, past)), a.ClientTLS(bob, bob)},
		{"server", "name", serves(ca.Certificate(t, bob, hour)), a.ClientTLS(alice, bob)},
	} {
		if _, _, err := shake(t, tt.server, tt.client); err == nil {
			t.Errorf("%s, %s: no error", tt.peer, tt.rule)
		}
		if got := refused(tt.peer, tt.rule); got != 1 {
			t.Errorf("%s, %s: counted %v times, want once", tt.peer, tt.rule, got)
		}
	}
}

// TestParameters are those of spec/proxy.md §12.1.
func TestParameters(t *testing.T) {
	ca := identitytest.New(t)
	a, b := ca.Local(t, alice), ca.Local(t, bob)
	var hello *tls.ClientHelloInfo
	server := b.ServerTLS()
	inner := server.GetConfigForClient
	server.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		hello = h
		return inner(h)
	}
	s, c, err := shake(t, server, a.ClientTLS(bob, bob, "transport.l5d.io/v1"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Version != tls.VersionTLS13 || s.CurveID != tls.X25519MLKEM768 || c.NegotiatedProtocol != "transport.l5d.io/v1" || s.DidResume || c.DidResume {
		t.Errorf("%+v", s)
	}
	want := []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256, tls.CurveP384}
	if !slices.Equal(hello.SupportedCurves, want) {
		t.Errorf("exchanges %v, want %v", hello.SupportedCurves, want)
	}
	if !slices.Equal(hello.SupportedVersions, []uint16{tls.VersionTLS13}) || !slices.Contains(hello.SignatureSchemes, tls.ECDSAWithP256AndSHA256) {
		t.Errorf("versions %v, signatures %v", hello.SupportedVersions, hello.SignatureSchemes)
	}
}

// TestRenewalMovesTheMetrics: spec/proxy.md §17, 55.
func TestRenewalMovesTheMetrics(t *testing.T) {
	ca := identitytest.New(t)
	ca.Life(2 * time.Second)
	cfg, reg := ca.Config(t, alice), prometheus.NewRegistry()
	l, err := identity.New(identity.Deps{Config: cfg, Dial: identitytest.Dial(cfg), Log: slog.New(slog.DiscardHandler), Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = l.Run(t.Context()) }()
	wait(t, l.Ready())
	value := func(name string) float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, f := range families {
			if f.GetName() == name {
				for _, m := range f.GetMetric() {
					sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
		return sum
	}
	const expires = "control_identity_cert_expiration_timestamp_seconds"
	first := value(expires)
	if first != float64(l.Expires().Unix()) && value("control_identity_cert_refreshes_total") == 1 {
		t.Errorf("it expires at %v, want %v", first, l.Expires())
	}
	eventually(t, "a later end", func() bool { return value(expires) > first && value("control_identity_cert_refreshes_total") > 1 })
}
