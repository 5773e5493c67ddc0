package serve_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/identity"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weftmesh/weft/services/identity/internal/issue"
	"github.com/weftmesh/weft/services/identity/internal/issue/issuetest"
	"github.com/weftmesh/weft/services/identity/internal/serve"
	"github.com/weftmesh/weft/services/identity/internal/token"
)

const (
	name   = "kiln.pottery.serviceaccount.identity.linkerd.cluster.local"
	user   = "system:serviceaccount:pottery:kiln"
	secret = "very-secret-token"
)

type fixed struct{ issuer *issue.Issuer }

func (f fixed) Current() *issue.Issuer { return f.issuer }

// owner answers every token with a user or an error.
type owner struct {
	user  string
	err   error
	calls int
}

func (o *owner) Review(context.Context, []byte) (string, error) {
	o.calls++
	return o.user, o.err
}

// dial serves the API in memory.
func dial(t *testing.T, cfg serve.Config) pb.IdentityClient {
	t.Helper()
	cfg.Domain = issue.Domain{ControllerNamespace: "linkerd", TrustDomain: "cluster.local"}
	srv := grpc.NewServer()
	pb.RegisterIdentityServer(srv, serve.New(cfg, prometheus.NewPedanticRegistry()))
	lis := bufconn.Listen(1 << 16)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:///identity",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); srv.Stop(); <-done })
	return pb.NewIdentityClient(conn)
}

// Each row is a line of spec §1.2: what is wrong, and the code for it. Where a
// row has two faults, the order of the checks decides.
func TestCertify(t *testing.T) {
	_, other, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr := func(change func(*x509.CertificateRequest)) []byte {
		r := issuetest.Plain(name)
		change(&r)
		return issuetest.Request(t, r, nil)
	}
	same := func(*x509.CertificateRequest) {}
	valid := issuetest.Issuer(t, 72*time.Hour)
	expired := issuetest.Issuer(t, -time.Minute)
	good := func() *pb.CertifyRequest {
		return &pb.CertifyRequest{Identity: name, Token: []byte(secret), CertificateSigningRequest: csr(same)}
	}
	change := func(f func(*pb.CertifyRequest)) *pb.CertifyRequest {
		r := good()
		f(r)
		return r
	}
	refuse := &owner{err: token.ErrInvalid}
	tests := []struct {
		name   string
		issuer *issue.Issuer
		owner  *owner
		in     *pb.CertifyRequest
		want   codes.Code
	}{
		{"all is well", valid, &owner{user: user}, good(), codes.OK},
		{"no common name", valid, &owner{user: user}, change(func(r *pb.CertifyRequest) {
			r.CertificateSigningRequest = csr(func(c *x509.CertificateRequest) { c.Subject = pkix.Name{} })
		}), codes.OK},
		{"no issuer", nil, &owner{user: user}, good(), codes.Unavailable},
		{"no issuer wins over an empty request", nil, refuse, &pb.CertifyRequest{}, codes.Unavailable},
		{"no identity", valid, &owner{user: user}, change(func(r *pb.CertifyRequest) { r.Identity = "" }), codes.InvalidArgument},
		{"no token", valid, &owner{user: user}, change(func(r *pb.CertifyRequest) { r.Token = nil }), codes.InvalidArgument},
		{"no request", valid, &owner{user: user}, change(func(r *pb.CertifyRequest) { r.CertificateSigningRequest = nil }), codes.InvalidArgument},
		{"damaged request", valid, &owner{user: user}, change(func(r *pb.CertifyRequest) { r.CertificateSigningRequest = []byte("x") }), codes.InvalidArgument},
		{"a missing token wins over an expired issuer", expired, refuse, change(func(r *pb.CertifyRequest) { r.Token = nil }), codes.InvalidArgument},
		{"expired issuer", expired, &owner{user: user}, good(), codes.Unknown},
		{"an expired issuer wins over a wrong name", expired, refuse, change(func(r *pb.CertifyRequest) { r.Identity = "else" }), codes.Unknown},
		{"request for another name", valid, &owner{user: user}, change(func(r *pb.CertifyRequest) { r.Identity = "else" }), codes.FailedPrecondition},
		{"a wrong request wins over a bad token", valid, refuse, change(func(r *pb.CertifyRequest) { r.Identity = "else" }), codes.FailedPrecondition},
		{"two names", valid, &owner{user: user}, change(func(r *pb.CertifyRequest) {
			r.CertificateSigningRequest = csr(func(c *x509.CertificateRequest) { c.DNSNames = []string{name, "b.example"} })
		}), codes.FailedPrecondition},
		{"other common name", valid, &owner{user: user}, change(func(r *pb.CertifyRequest) {
			r.CertificateSigningRequest = csr(func(c *x509.CertificateRequest) { c.Subject.CommonName = "b" })
		}), codes.FailedPrecondition},
		{"a URI beside the name", valid, &owner{user: user}, change(func(r *pb.CertifyRequest) {
			r.CertificateSigningRequest = csr(func(c *x509.CertificateRequest) { c.URIs = []*url.URL{{Scheme: "spiffe", Host: "a"}} })
		}), codes.FailedPrecondition},
		{"authenticator is down", valid, &owner{err: errors.New("connection refused")}, good(), codes.Internal},
		{"token refused", valid, refuse, good(), codes.InvalidArgument},
		{"token of nobody", valid, &owner{err: token.ErrUnauthenticated}, good(), codes.FailedPrecondition},
		{"not a user name of ours", valid, &owner{user: "admin"}, good(), codes.InvalidArgument},
		{"account with a dot", valid, &owner{user: "system:serviceaccount:pottery:kiln.b"}, good(), codes.InvalidArgument},
		{"another account", valid, &owner{user: "system:serviceaccount:pottery:wheel"}, good(), codes.FailedPrecondition},
		{"another kind", valid, &owner{user: "system:node:pottery:kiln"}, good(), codes.FailedPrecondition},
		{"key is not ECDSA", valid, &owner{user: user}, change(func(r *pb.CertifyRequest) {
			r.CertificateSigningRequest = issuetest.Request(t, issuetest.Plain(name), other)
		}), codes.Internal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			api := dial(t, serve.Config{
				Issuers: fixed{tt.issuer}, Tokens: tt.owner, Now: func() time.Time { return issuetest.Now },
			})
			resp, err := api.Certify(t.Context(), tt.in)
			if got := status.Code(err); got != tt.want {
				t.Fatalf("Certify() = %v (%v), want %v", got, err, tt.want)
			}
			if err != nil {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("error holds the token: %v", err)
				}
				return
			}
			leaf, err := x509.ParseCertificate(resp.GetLeafCertificate())
			if err != nil {
				t.Fatal(err)
			}
			if got := resp.GetValidUntil().AsTime(); !got.Equal(leaf.NotAfter) {
				t.Errorf("valid_until = %v, want %v", got, leaf.NotAfter)
			}
			if n := len(resp.GetIntermediateCertificates()); n != 1 {
				t.Errorf("%d intermediates, want the issuer alone", n)
			}
		})
	}
}

// The token is not asked about before everything else is known to be right.
func TestCertifyAsksAboutTheTokenLast(t *testing.T) {
	who := &owner{user: user}
	api := dial(t, serve.Config{
		Issuers: fixed{issuetest.Issuer(t, time.Hour)}, Tokens: who, Now: func() time.Time { return issuetest.Now },
	})
	_, err := api.Certify(t.Context(), &pb.CertifyRequest{
		Identity: "else", Token: []byte(secret),
		CertificateSigningRequest: issuetest.Request(t, issuetest.Plain(name), nil),
	})
	if err == nil || who.calls != 0 {
		t.Errorf("Certify() = %v after %d questions about the token, want 0", err, who.calls)
	}
}
