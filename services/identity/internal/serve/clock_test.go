package serve_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/identity"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/services/identity/internal/events"
	"github.com/weftmesh/weft/services/identity/internal/issue"
	"github.com/weftmesh/weft/services/identity/internal/issue/issuetest"
	"github.com/weftmesh/weft/services/identity/internal/serve"
	"github.com/weftmesh/weft/services/identity/internal/token"
)

// A clock that jumps: outside of the issuer's life nothing is issued and people
// are told; inside, a leaf lives from a little before now, and never longer than
// its issuer. What the clock did before does not matter.
func TestClockJumps(t *testing.T) {
	const life = 48 * time.Hour
	now := issuetest.Now
	var told []events.Event
	api := dial(t, serve.Config{
		Issuers: fixed{issuetest.Issuer(t, life)}, Tokens: &owner{user: user}, Now: func() time.Time { return now },
		Validity: issue.Validity{Lifetime: time.Hour, Skew: 20 * time.Second},
		Record:   func(e events.Event) { told = append(told, e) },
	})
	end := issuetest.Now.Add(life)
	for _, tt := range []struct {
		at   time.Duration // from the issuer's start
		want codes.Code
		left time.Duration // of the leaf
	}{
		{time.Hour, codes.OK, time.Hour + 20*time.Second},
		{life + time.Hour, codes.Unknown, 0},
		{2 * time.Hour, codes.OK, time.Hour + 20*time.Second},
		{life - 30*time.Minute, codes.OK, 30 * time.Minute},
		{-1000 * time.Hour, codes.Unknown, 0},
		{life - time.Second, codes.OK, time.Second},
		{100 * 365 * 24 * time.Hour, codes.Unknown, 0},
	} {
		now = issuetest.Now.Add(tt.at)
		told = nil
		resp, err := api.Certify(t.Context(), &pb.CertifyRequest{
			Identity: name, Token: []byte(secret), CertificateSigningRequest: issuetest.Request(t, issuetest.Plain(name), nil),
		})
		if status.Code(err) != tt.want {
			t.Errorf("at %s: %v, want %v", tt.at, err, tt.want)
			continue
		}
		if err != nil {
			if len(told) != 1 || !told[0].Warning || told[0].Reason != events.IssuerValidationFailed || told[0].About.Name != "linkerd-identity" {
				t.Errorf("at %s: events %+v", tt.at, told)
			}
			continue
		}
		leaf, err := x509.ParseCertificate(resp.GetLeafCertificate())
		if err != nil {
			t.Fatal(err)
		}
		if left := leaf.NotAfter.Sub(now); left != tt.left || leaf.NotAfter.After(end) || now.Sub(leaf.NotBefore) != 20*time.Second {
			t.Errorf("at %s: from %s to %s, want %s left", tt.at, leaf.NotBefore, leaf.NotAfter, tt.left)
		}
	}
}

// What a stranger sends comes back as a code, never as a panic, and neither the
// token nor a flood of it gets into an answer or a log.
func TestStrangers(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr := func(change func(*x509.CertificateRequest)) []byte {
		r := issuetest.Plain(name)
		change(&r)
		return issuetest.Request(t, r, nil)
	}
	plain := csr(func(*x509.CertificateRequest) {})
	long := strings.Repeat("x", 1<<20)
	for _, tt := range []struct {
		name string
		in   *pb.CertifyRequest
		who  *owner
		want codes.Code
	}{
		{"nothing", &pb.CertifyRequest{}, &owner{}, codes.InvalidArgument},
		{"a huge identity", &pb.CertifyRequest{Identity: long, Token: []byte(secret), CertificateSigningRequest: plain}, &owner{}, codes.FailedPrecondition},
		{"a huge token", &pb.CertifyRequest{Identity: name, Token: []byte(secret + long), CertificateSigningRequest: plain}, &owner{err: token.ErrInvalid}, codes.InvalidArgument},
		{"a request with a tail", &pb.CertifyRequest{Identity: name, Token: []byte(secret), CertificateSigningRequest: append(bytes.Clone(plain), 0)}, &owner{user: user}, codes.InvalidArgument},
		{"a request cut short", &pb.CertifyRequest{Identity: name, Token: []byte(secret), CertificateSigningRequest: plain[:len(plain)/2]}, &owner{user: user}, codes.InvalidArgument},
		{"a request in PEM", &pb.CertifyRequest{Identity: name, Token: []byte(secret), CertificateSigningRequest: []byte("-----BEGIN CERTIFICATE REQUEST-----")}, &owner{user: user}, codes.InvalidArgument},
		{"ten thousand names", &pb.CertifyRequest{Identity: name, Token: []byte(secret), CertificateSigningRequest: csr(func(c *x509.CertificateRequest) {
			c.DNSNames = strings.Split(strings.Repeat(name+",", 10_000)+name, ",")
		})}, &owner{user: user}, codes.FailedPrecondition},
		{"an address beside the name", &pb.CertifyRequest{Identity: name, Token: []byte(secret), CertificateSigningRequest: csr(func(c *x509.CertificateRequest) {
			c.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 1)}
		})}, &owner{user: user}, codes.FailedPrecondition},
		{"an address of mail beside it", &pb.CertifyRequest{Identity: name, Token: []byte(secret), CertificateSigningRequest: csr(func(c *x509.CertificateRequest) {
			c.EmailAddresses = []string{"a@b.example"}
		})}, &owner{user: user}, codes.FailedPrecondition},
		{"the name in capitals", &pb.CertifyRequest{Identity: strings.ToUpper(name), Token: []byte(secret), CertificateSigningRequest: plain}, &owner{user: user}, codes.FailedPrecondition},
		{"the name with a dot", &pb.CertifyRequest{Identity: name + ".", Token: []byte(secret), CertificateSigningRequest: plain}, &owner{user: user}, codes.FailedPrecondition},
		{"a key of another curve", &pb.CertifyRequest{Identity: name, Token: []byte(secret), CertificateSigningRequest: issuetest.Request(t, issuetest.Plain(name), p384)}, &owner{user: user}, codes.Internal},
		{"a user name with a line break", &pb.CertifyRequest{Identity: name, Token: []byte(secret), CertificateSigningRequest: plain}, &owner{user: user + "\n"}, codes.InvalidArgument},
		{"a group's user name", &pb.CertifyRequest{Identity: name, Token: []byte(secret), CertificateSigningRequest: plain}, &owner{user: "system:serviceaccounts:pottery"}, codes.InvalidArgument},
		{"an account of another namespace", &pb.CertifyRequest{Identity: name, Token: []byte(secret), CertificateSigningRequest: plain}, &owner{user: "system:serviceaccount:glaze:kiln"}, codes.FailedPrecondition},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api := dial(t, serve.Config{
				Issuers: fixed{issuetest.Issuer(t, time.Hour)}, Tokens: tt.who, Now: func() time.Time { return issuetest.Now },
			})
			_, err := api.Certify(t.Context(), tt.in)
			if status.Code(err) != tt.want || len(err.Error()) > 1000 || strings.Contains(err.Error(), secret) {
				t.Errorf("Certify() = %.300v, want %v", err, tt.want)
			}
		})
	}
	if strings.Contains(out.String(), secret) || out.Len() > 10_000 {
		t.Errorf("%d bytes of logs: %.1000s", out.Len(), out.Bytes())
	}
}
