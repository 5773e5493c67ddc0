package bus_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	"github.com/weftmesh/weft/bus/internal/logtest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

func TestServerRestartWithNothingRemembered(t *testing.T) {
	t.Parallel()
	srv := bustest.Server(t)
	w := logtest.NewWorld(t, srv)
	writer, one, two := w.Start("writer"), w.Start("one"), w.Start("two")
	rows := make([]bus.Change, 1000)
	for i := range rows {
		rows[i] = node(fmt.Sprintf("n%04d", i), "a")
	}
	writer.Lead(rows...)
	w.Agree(writer, one, two)
	before := len(one.Cuts())

	srv.Stop()
	for i := range 50 {
		writer.Append(node(fmt.Sprintf("n%04d", i), "while it was down"))
	}
	if got := one.R.Status().Seq; got == writer.R.Status().Seq {
		t.Fatal("the reader heard the writer without a server")
	}
	srv.Start()
	began := time.Now()
	w.Agree(writer, one, two)
	t.Logf("all agree %v after the restart", time.Since(began))
	if n := one.Changes(before); n != 50 {
		t.Errorf("consumer was told %d changes, want the 50 real ones", n)
	}
	writer.Append(node("n0000", "live again"))
	w.Agree(writer, one, two)
}

func TestConnectBeforeThereIsAServer(t *testing.T) {
	t.Parallel()
	srv := bustest.Server(t)
	srv.Stop() // its port is known now, and nobody listens
	w := logtest.NewWorld(t, srv)
	writer, reader := w.Start("writer"), w.Start("reader")
	if err := reader.Publish("x", nil, nil); !errors.Is(err, bus.ErrDisconnected) {
		t.Errorf("Publish() without a server = %v, want %v", err, bus.ErrDisconnected)
	}
	writer.Lead(node("n", "a"))
	srv.Start()
	w.Agree(writer, reader)
}

func TestRunEndsWithTheProcessOrTheConnection(t *testing.T) {
	t.Parallel()
	srv := bustest.NATS(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	tr := srv.Join("")
	go func() { ended <- tr.Run(ctx) }()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run() after its context = %v", err)
	}
	tr = srv.Join("")
	go func() { ended <- tr.Run(t.Context()) }()
	tr.Close()
	if err := <-ended; err == nil {
		t.Error("Run() of a closed connection = nil, want an error that ends the process")
	}
}

// TestSlowConsumerIsToldSo: NATS drops what a subscription can't hold; who
// watches the transport hears of it.
func TestSlowConsumerIsToldSo(t *testing.T) {
	t.Parallel()
	srv := bustest.NATS(t)
	slow, other := srv.Join(""), srv.Join("")
	told := make(chan struct{})
	var once sync.Once
	stop := slow.Watch(func(e bus.Event) {
		if e == bus.Slow {
			once.Do(func() { close(told) })
		}
	})
	defer stop()
	blocked := make(chan struct{})
	defer close(blocked)
	sub, err := slow.Subscribe("weft.local.log", func(bus.Message) { <-blocked })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Stop()
	if _, err := slow.Request(t.Context(), "weft.local.roll", nil); !errors.Is(err, bus.ErrNoPeers) {
		t.Fatalf("Request() = %v, want %v once the subscription is known", err, bus.ErrNoPeers)
	}
	for range 20_000 { // more than may be pending
		if err := other.Publish("weft.local.log", nil, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-told:
	case <-t.Context().Done():
		t.Fatal("never told")
	}
}

func TestConnectRefusesNonsense(t *testing.T) {
	t.Parallel()
	if _, err := bus.Connect(t.Context(), bus.Config{Cluster: "a.b"}, "test", prometheus.NewRegistry()); err == nil {
		t.Error("Connect() to cluster a.b = nil error")
	}
	dir := t.TempDir()
	cfg := bus.Config{CA: filepath.Join(dir, "absent.pem")}
	if _, err := bus.Connect(t.Context(), cfg, "test", prometheus.NewRegistry()); err == nil {
		t.Error("Connect() with an absent CA = nil error")
	}
	cfg = bus.Config{Credentials: filepath.Join(dir, "absent.creds")}
	if _, err := bus.Connect(t.Context(), cfg, "test", prometheus.NewRegistry()); err == nil {
		t.Error("Connect() with absent credentials = nil error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := bus.Connect(ctx, bus.Config{}, "test", prometheus.NewRegistry()); err == nil {
		t.Error("Connect() after the end = nil error")
	}
}

func TestTLSWithClientCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newAuthority(t, dir)
	serverCert := ca.issue(t, dir, "server")
	clientCert := ca.issue(t, dir, "client")
	pair, err := tls.LoadX509KeyPair(serverCert+".pem", serverCert+".key")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		max  uint16
		cfg  bus.Config
		ok   bool
	}{
		{"client certificate", 0, bus.Config{CA: ca.file, Cert: clientCert + ".pem", Key: clientCert + ".key"}, true},
		{"no client certificate", 0, bus.Config{CA: ca.file}, false},
		{"TLS 1.2 server", tls.VersionTLS12, bus.Config{CA: ca.file, Cert: clientCert + ".pem", Key: clientCert + ".key"}, false},
	} {
		srv := bustest.ServerWith(t, server.Options{
			Host: "127.0.0.1", Port: server.RANDOM_PORT, TLS: true, TLSVerify: true, TLSTimeout: 5,
			TLSConfig: &tls.Config{
				Certificates: []tls.Certificate{pair}, ClientCAs: ca.pool, ClientAuth: tls.RequireAndVerifyClientCert,
				MinVersion: tls.VersionTLS12, MaxVersion: tc.max,
			},
		})
		tc.cfg.Servers = srv.Config().Servers
		conn, err := bus.Connect(t.Context(), tc.cfg, "test", prometheus.NewRegistry())
		if err != nil {
			if tc.ok {
				t.Errorf("%s: Connect() = %v", tc.name, err)
			}
			continue
		}
		patience := 2 * time.Second // of a few tries
		if tc.ok {
			patience = time.Minute
		}
		if got := connects(t, conn, patience); got != tc.ok {
			t.Errorf("%s: connected is %v, want %v", tc.name, got, tc.ok)
		}
		conn.Close()
	}
}

// connects waits until a message comes back, or no longer.
func connects(t *testing.T, conn bus.Transport, patience time.Duration) bool {
	t.Helper()
	back := make(chan struct{}, 100)
	sub, err := conn.Subscribe("weft.local.presence", func(bus.Message) { back <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		_ = conn.Publish("weft.local.presence", nil, bus.Encode(&busv1.Presence{}))
		select {
		case <-back:
			return true
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

type authority struct {
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	a := &authority{file: filepath.Join(dir, "ca.pem"), pool: x509.NewCertPool()}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.file, "CERTIFICATE", der)
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

// issue writes NAME.pem and NAME.key and gives their common path.
func (a *authority) issue(t *testing.T, dir, name string) string {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	writePEM(t, path+".pem", "CERTIFICATE", der)
	writePEM(t, path+".key", "PRIVATE KEY", raw)
	return path
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
