package main

import (
	"crypto/fips140"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/services/identity/internal/issue"
	"github.com/weftmesh/weft/services/identity/internal/issue/issuetest"
)

// leafOf is a proxy's certificate, made by the rules of this service.
func leafOf(t *testing.T, by *issue.Issuer, account string) tls.Certificate {
	t.Helper()
	domain := issue.Domain{ControllerNamespace: "linkerd", TrustDomain: "cluster.local"}
	a := issue.Account{Kind: "serviceaccount", Namespace: "pottery", Name: account}
	key := issuetest.Key(t)
	csr, err := issue.ParseRequest(issuetest.Request(t, issuetest.Plain(domain.Identity(a)), key))
	if err != nil {
		t.Fatal(err)
	}
	serial, err := issue.Serial()
	if err != nil {
		t.Fatal(err)
	}
	got, err := issue.Sign(issue.Order{Request: csr, URI: domain.SPIFFE(a), Now: issuetest.Now, Serial: serial}, by)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{PrivateKey: key, Leaf: got.Leaf, Certificate: append([][]byte{got.Leaf.Raw}, got.Between...)}
}

// Two proxies' certificates meet with post-quantum key exchange, which depends
// on the go line of go.mod (complaint B17), in FIPS mode too.
func TestHandshake(t *testing.T) {
	by := issuetest.Issuer(t, time.Hour)
	roots := x509.NewCertPool()
	roots.AddCert(by.Anchors[0])
	clock := func() time.Time { return issuetest.Now }
	server, client := leafOf(t, by, "kiln"), leafOf(t, by, "wheel")
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	served := make(chan error, 1)
	go func() {
		raw, err := lis.Accept()
		if err == nil {
			conn := tls.Server(raw, &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{server}, Time: clock,
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
			})
			err = conn.HandshakeContext(t.Context())
			_ = raw.Close()
		}
		served <- err
	}()
	raw, err := new(net.Dialer).DialContext(t.Context(), "tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	conn := tls.Client(raw, &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{client}, Time: clock,
		RootCAs: roots, ServerName: server.Leaf.DNSNames[0],
	})
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if got := conn.ConnectionState().CurveID; got != tls.X25519MLKEM768 {
		t.Errorf("key exchange %v, want X25519MLKEM768", got)
	}
	t.Logf("FIPS mode: %t", fips140.Enabled())
}

// The process and a handshake under GODEBUG=fips140=on: the whole of
// TestProcess is run again in that mode, the service it starts inheriting it.
func TestFIPS(t *testing.T) {
	if fips140.Enabled() {
		t.Skip("this is the inner run")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^(TestProcess|TestHandshake)$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), "GODEBUG=fips140=on")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"--- PASS: TestProcess ", "--- PASS: TestHandshake ", "FIPS mode: true"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
