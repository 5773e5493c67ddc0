package main

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	pb "github.com/linkerd/linkerd2-proxy-api/go/identity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weftmesh/weft/services/identity/internal/issue/issuetest"
	"github.com/weftmesh/weft/services/identity/internal/token"
)

const kubeIssuer = "https://kubernetes.default.svc.cluster.local"

// cluster is an API server as far as the identity service asks it.
type cluster struct {
	*httptest.Server

	mu      sync.Mutex
	allowed bool     // may review tokens
	away    bool     // answers 503
	jwks    []byte   // of its tokens
	reviews int      // asked for
	events  []string // reason and object of each
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{allowed: true}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *cluster) set(f func()) { c.mu.Lock(); defer c.mu.Unlock(); f() }

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if c.away {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var body struct {
		Spec           struct{ Token string }
		Reason         string
		InvolvedObject struct{ Kind, Namespace, Name string }
	}
	_ = json.NewDecoder(r.Body).Decode(&body) // a GET has none
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/selfsubjectaccessreviews"):
		fmt.Fprintf(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":%t}}`, c.allowed)
	case strings.HasSuffix(path, "/tokenreviews"):
		c.reviews++
		_, payload, _ := strings.Cut(body.Spec.Token, ".")
		payload, _, _ = strings.Cut(payload, ".")
		raw, _ := base64.RawURLEncoding.DecodeString(payload)
		var claims struct{ Sub string }
		_ = json.Unmarshal(raw, &claims) // what is damaged has no subject
		fmt.Fprintf(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":%q}}}`, claims.Sub)
	case path == "/.well-known/openid-configuration":
		fmt.Fprintf(w, `{"issuer":%q}`, kubeIssuer)
	case path == "/openid/v1/jwks":
		_, _ = w.Write(c.jwks)
	case strings.HasSuffix(path, "/events"):
		c.events = append(c.events, fmt.Sprintf("%s %s %s/%s", body.Reason, body.InvolvedObject.Kind, body.InvolvedObject.Namespace, body.InvolvedObject.Name))
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"kind":"Event","apiVersion":"v1"}`))
	default:
		w.WriteHeader(http.StatusForbidden)
	}
}

func (c *cluster) told(event string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.events, event)
}

// kubeconfig is a file by which the service finds the cluster.
func (c *cluster) kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	put(t, path, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c",
		"clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{}}],
		"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`, c.URL))
	return path
}

// A whole life in Kubernetes: certificates by TokenReview, then an outage in
// which the API server's own keys vouch, then its return; a good and a bad
// issuer. Each is seen in the events.
func TestProcessInKubernetes(t *testing.T) {
	c := newCluster(t)
	dir := t.TempDir()
	root := issuetest.NewAuthority(t, "root", nil, time.Now(), 100*time.Hour, nil)
	for file, b := range issuerFiles(t, issuetest.NewAuthority(t, "issuer", root, time.Now(), time.Hour, nil)) {
		put(t, filepath.Join(dir, file), b)
	}
	put(t, filepath.Join(dir, "ca-bundle.crt"), root.PEM())
	key := issuetest.Key(t)
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	c.jwks = fmt.Appendf(nil, `{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","use":"sig","kid":"k","x":%q,"y":%q}]}`,
		base64.RawURLEncoding.EncodeToString(point[1:33]), base64.RawURLEncoding.EncodeToString(point[33:]))
	tok := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"iss": kubeIssuer, "aud": []string{token.Audience}, "exp": time.Now().Add(time.Hour).Unix(), "sub": "system:serviceaccount:pottery:kiln",
		"kubernetes.io": map[string]any{
			"namespace": "pottery", "serviceaccount": map[string]string{"name": "kiln", "uid": "1"}, "pod": map[string]string{"name": "kiln-0", "uid": "2"},
		},
	})
	tok.Header["kid"] = "k"
	secret, err := tok.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	p := launch(t, "-listen", "127.0.0.1:0", "-obs.admin", "127.0.0.1:0", "-issuer", dir,
		"-trust-anchors", filepath.Join(dir, "ca-bundle.crt"), "-kubeconfig", c.kubeconfig(t))
	conn, err := grpc.NewClient(p.api, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	const name = "kiln.pottery.serviceaccount.identity.linkerd.cluster.local"
	certify := func(step string) {
		t.Helper()
		got, err := pb.NewIdentityClient(conn).Certify(t.Context(), &pb.CertifyRequest{
			Identity: name, Token: []byte(secret), CertificateSigningRequest: issuetest.Request(t, issuetest.Plain(name), nil),
		}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		leaf, err := x509.ParseCertificate(got.GetLeafCertificate())
		if err != nil || len(leaf.URIs) != 1 || leaf.URIs[0].String() != "spiffe://cluster.local/ns/pottery/sa/kiln" {
			t.Errorf("%s: URIs %v, %v", step, leaf.URIs, err)
		}
	}
	metric := func(line string) bool { _, body := p.get(t, "/metrics"); return strings.Contains(body, line) }

	certify("online")
	until(t, "the event of a certificate", func() bool { return c.told("IssuedLeafCertificate ServiceAccount pottery/kiln") })
	until(t, "the API server's keys", func() bool {
		_, body := p.get(t, "/metrics")
		return strings.Contains(body, "weft_identity_offline_keys_seen_seconds 1")
	})
	c.set(func() { c.away = true })
	certify("API server away")
	if !metric(`weft_identity_offline_reviews_total{result="accepted"} 1`) {
		t.Error("the metrics do not show the token that was checked offline")
	}
	c.set(func() { c.away = false })
	before := 0
	c.set(func() { before = c.reviews })
	until(t, "reviews by the API server", func() bool {
		certify("API server back")
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.reviews > before
	})

	for file, b := range issuerFiles(t, issuetest.NewAuthority(t, "second", root, time.Now(), time.Hour, nil)) {
		put(t, filepath.Join(dir, file), b)
	}
	until(t, "the event of a new issuer", func() bool { return c.told("IssuerUpdated Deployment linkerd/linkerd-identity") })
	put(t, filepath.Join(dir, "key.pem"), []byte("x"))
	until(t, "the event of a bad issuer", func() bool { return c.told("IssuerUpdateSkipped Deployment linkerd/linkerd-identity") })
	certify("bad issuer on disk")
}

func issuerFiles(t *testing.T, a *issuetest.Authority) map[string][]byte {
	t.Helper()
	return map[string][]byte{"crt.pem": a.PEM(), "key.pem": a.KeyPEM(t)}
}

// How a process ends that can never issue: at once, with a reason; and one that
// has nothing to do ends with 0.
func TestProcessThatCannotStart(t *testing.T) {
	c := newCluster(t)
	c.allowed = false
	dir := t.TempDir()
	root := issuetest.NewAuthority(t, "root", nil, time.Now(), 100*time.Hour, nil)
	put(t, filepath.Join(dir, "ca-bundle.crt"), root.PEM())
	put(t, filepath.Join(dir, "crt.pem"), issuetest.NewAuthority(t, "issuer", root, time.Now(), time.Hour, nil).PEM())
	base := []string{"-obs.admin", "127.0.0.1:0", "-listen", "127.0.0.1:0", "-issuer", dir, "-trust-anchors", filepath.Join(dir, "ca-bundle.crt"), "-kubeconfig", c.kubeconfig(t)}
	for _, tt := range []struct {
		name, want string
		before     func()
		more       []string
		code       int
	}{
		{"may not review tokens", "may not create tokenreviews", func() {}, nil, 1},
		// Complaint B6: nothing is made up in its place.
		{"no key", "key.pem", func() { c.set(func() { c.allowed = true }) }, nil, 1},
		{"no scheme", "disabled", func() {}, []string{"-identity-scheme", ""}, 0},
		{"no trust domain", "disabled", func() {}, []string{"-identity-trust-domain", ""}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.before()
			cmd := command(t, append(slices.Clip(base), tt.more...)...)
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(string(out), tt.want) {
				t.Errorf("exit %d (%v), want %d and %q in\n%s", code, err, tt.code, tt.want, out)
			}
		})
	}
}
