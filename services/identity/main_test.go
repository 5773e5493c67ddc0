package main

import (
	"bufio"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	pb "github.com/linkerd/linkerd2-proxy-api/go/identity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/services/identity/internal/issue/issuetest"
	"github.com/weftmesh/weft/services/identity/internal/token"
	"github.com/weftmesh/weft/services/kit/conf"
)

// TestMain lets the test binary be the service: with this variable set it runs
// main instead of the tests.
func TestMain(m *testing.M) {
	if os.Getenv("BE_IDENTITY") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestCheck(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{nil, ""},
		{[]string{"-identity-scheme", "kubernetes.io/tls", "-tokens", "jwks:/keys"}, ""},
		{[]string{"-identity-scheme", "x"}, "identity-scheme"},
		{[]string{"-identity-trust-domain", "a..b"}, "trust domain"},
		{[]string{"-controller-namespace", "A"}, "controller namespace"},
		{[]string{"-tokens", "jwks:"}, "tokens"},
		{[]string{"-tokens", "all"}, "tokens"},
		{[]string{"-identity-scheme", "", "-tokens", "all"}, ""}, // disabled: nothing else is looked at
		{[]string{"-offline-tokens", "-1s"}, "offline-tokens"},
		{[]string{"-offline-tokens", "48h"}, "offline-tokens"},
		{[]string{"-kube-apiclient-qps", "-1"}, "kube-apiclient-qps"},
		{[]string{"-kube-apiclient-burst", "-1"}, "kube-apiclient-burst"},
		{[]string{"-limit.rate", "-1"}, "limit.rate"},
		{[]string{"-identity-issuance-lifetime", "-1h"}, "identity-issuance-lifetime"},
		{[]string{"-identity-clock-skew-allowance", "-1s"}, "identity-clock-skew-allowance"},
		{[]string{"-identity-issuance-lifetime", "soon"}, "identity-issuance-lifetime"},
		{[]string{"-api.max-recv", "-1"}, "api.max-recv"},
	}
	for _, tt := range tests {
		_, err := conf.LoadFrom(defaults(), tt.args, nil)
		if (err == nil) != (tt.want == "") || (err != nil && !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%v: %v, want an error with %q", tt.args, err, tt.want)
		}
	}
}

// process is the service as a process of its own.
type process struct {
	cmd        *exec.Cmd
	admin, api string
	ended      chan error
}

var listening = regexp.MustCompile(`msg="(admin|api) listening".* addr=([0-9.:]+)`)

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "BE_IDENTITY=1")
	return cmd
}

func launch(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{ended: make(chan error, 1), cmd: command(t, args...)}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addrs := make(chan [2]string, 2)
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				addrs <- [2]string{m[1], m[2]}
			}
			if strings.Contains(lines.Text(), "eyJ") { // a JWT's beginning
				t.Errorf("log holds a token: %s", lines.Text())
			}
		}
		p.ended <- p.cmd.Wait()
	}()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for p.admin == "" || p.api == "" {
		select {
		case a := <-addrs:
			if a[0] == "admin" {
				p.admin = a[1]
			} else {
				p.api = a[1]
			}
		case err := <-p.ended:
			t.Fatalf("the service ended at once: %v", err)
		case <-deadline.C:
			t.Fatal("the service does not say where it listens")
		}
	}
	return p
}

// get asks the admin server.
func (p *process) get(t *testing.T, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.admin+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func put(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A whole life: start, certify with a local token, refuse another's, show
// metrics, stop.
func TestProcess(t *testing.T) {
	dir := t.TempDir()
	root := issuetest.NewAuthority(t, "root", nil, time.Now(), 100*time.Hour, nil)
	ca := issuetest.NewAuthority(t, "issuer", root, time.Now(), time.Hour, nil)
	key := issuetest.Key(t)
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "crt.pem"), ca.PEM())
	put(t, filepath.Join(dir, "key.pem"), ca.KeyPEM(t))
	put(t, filepath.Join(dir, "ca.crt"), root.PEM())
	put(t, filepath.Join(dir, "keys"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	p := launch(t, "-listen", "127.0.0.1:0", "-obs.admin", "127.0.0.1:0", "-issuer", dir,
		"-trust-anchors", filepath.Join(dir, "ca.crt"), "-tokens", "jwks:"+filepath.Join(dir, "keys"))

	conn, err := grpc.NewClient(p.api, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	secret, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"aud": token.Audience, "exp": time.Now().Add(time.Hour).Unix(), "sub": "system:serviceaccount:pottery:kiln",
	}).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	certify := func(name string) (*pb.CertifyResponse, error) {
		return pb.NewIdentityClient(conn).Certify(t.Context(), &pb.CertifyRequest{
			Identity: name, Token: []byte(secret),
			CertificateSigningRequest: issuetest.Request(t, issuetest.Plain(name), nil),
		}, grpc.WaitForReady(true))
	}
	const name = "kiln.pottery.serviceaccount.identity.linkerd.cluster.local"
	got, err := certify(name)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(got.GetLeafCertificate())
	if err != nil || leaf.DNSNames[0] != name || !leaf.NotAfter.Equal(ca.Cert.NotAfter) {
		t.Errorf("leaf for %v until %v (%v)", leaf.DNSNames, leaf.NotAfter, err)
	}
	if _, err := certify("wheel.pottery.serviceaccount.identity.linkerd.cluster.local"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("another's name: %v, want FailedPrecondition", err)
	}
	if code, body := p.get(t, "/ready"); code != http.StatusOK {
		t.Errorf("/ready: %d %s", code, body)
	}
	if _, body := p.get(t, "/metrics"); !strings.Contains(body, `weft_identity_certify_answers_total{code="OK"} 1`) {
		t.Error("the metrics do not show the one answer")
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-p.ended; err != nil {
		t.Errorf("ended with %v, want exit 0", err)
	}
}
