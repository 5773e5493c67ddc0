package token

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"
)

const (
	issuerURL = "https://kubernetes.default.svc.cluster.local"
	owner     = "system:serviceaccount:pottery:kiln"
)

// signer is an API server's token key.
type signer struct {
	key    *ecdsa.PrivateKey
	kid    string
	method jwt.SigningMethod
}

func newSigner(t testing.TB, curve elliptic.Curve, method jwt.SigningMethod, kid string) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{key, kid, method}
}

// jwks is the set as an API server shows it, with keys that we cannot read.
func jwksOf(t testing.TB, all ...signer) []byte {
	t.Helper()
	keys := []map[string]string{
		{"kty": "EC", "crv": "P-256", "kid": "broken", "use": "sig", "x": "AQ", "y": "AQ"},
		{"kty": "future", "kid": "x"},
	}
	for _, s := range all {
		point, err := s.key.PublicKey.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		half := (len(point) - 1) / 2
		keys = append(keys, map[string]string{
			"kty": "EC", "use": "sig", "alg": s.method.Alg(), "kid": s.kid, "crv": s.key.Params().Name,
			"x": base64.RawURLEncoding.EncodeToString(point[1 : 1+half]),
			"y": base64.RawURLEncoding.EncodeToString(point[1+half:]),
		})
	}
	b, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// projected is what a kubelet gives to a proxy.
func projected(now time.Time) jwt.MapClaims {
	return jwt.MapClaims{
		"iss": issuerURL, "sub": owner, "aud": []string{Audience},
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"kubernetes.io": map[string]any{
			"namespace":      "pottery",
			"serviceaccount": map[string]any{"name": "kiln", "uid": "1"},
			"pod":            map[string]any{"name": "kiln-0", "uid": "2"},
			"node":           map[string]any{"name": "n", "uid": "3"},
		},
	}
}

func (s signer) mint(t testing.TB, c jwt.MapClaims) []byte {
	t.Helper()
	tok := jwt.NewWithClaims(s.method, c)
	tok.Header["kid"] = s.kid
	text, err := tok.SignedString(s.key)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(text)
}

func TestVerifyPublished(t *testing.T) {
	now := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	s := newSigner(t, elliptic.P256(), jwt.SigningMethodES256, "a")
	s384 := newSigner(t, elliptic.P384(), jwt.SigningMethodES384, "b")
	s521 := newSigner(t, elliptic.P521(), jwt.SigningMethodES512, "c")
	foreign := newSigner(t, elliptic.P256(), jwt.SigningMethodES256, "a")
	set, err := parsePublished([]byte(`{"issuer":"`+issuerURL+`","jwks_uri":"https://10.0.0.1/openid/v1/jwks"}`), jwksOf(t, s, s384, s521))
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(c jwt.MapClaims, k map[string]any)) []byte {
		c := projected(now)
		f(c, c["kubernetes.io"].(map[string]any))
		return s.mint(t, c)
	}
	tests := []struct {
		name string
		in   []byte
		want string // part of the refusal; "" is accepted
	}{
		{"a pod's token", s.mint(t, projected(now)), ""},
		{"P-384", s384.mint(t, projected(now)), ""},
		{"P-521", s521.mint(t, projected(now)), ""},
		{"foreign key", foreign.mint(t, projected(now)), "no known key"},
		{"another issuer", change(func(c jwt.MapClaims, _ map[string]any) { c["iss"] = "https://else" }), "another issuer"},
		{"no issuer", change(func(c jwt.MapClaims, _ map[string]any) { delete(c, "iss") }), "claim is missing"},
		{"another audience", change(func(c jwt.MapClaims, _ map[string]any) { c["aud"] = []string{issuerURL} }), "audience"},
		{"expired", change(func(c jwt.MapClaims, _ map[string]any) { c["exp"] = now.Unix() - 1 }), "expired"},
		{"never expires", change(func(c jwt.MapClaims, _ map[string]any) { delete(c, "exp") }), "claim is missing"},
		{"not yet valid", change(func(c jwt.MapClaims, _ map[string]any) { c["nbf"] = now.Unix() + 60 }), "not valid yet"},
		{"an old-style token", change(func(c jwt.MapClaims, _ map[string]any) {
			delete(c, "kubernetes.io")
			c["kubernetes.io/serviceaccount/namespace"] = "pottery"
		}), "do not belong together"},
		{"bound to no pod", change(func(_ jwt.MapClaims, k map[string]any) { delete(k, "pod") }), "do not belong together"},
		{"subject of another account", change(func(c jwt.MapClaims, _ map[string]any) { c["sub"] = "system:serviceaccount:pottery:wheel" }), "do not belong together"},
		{"claims of a wrong type", change(func(_ jwt.MapClaims, k map[string]any) { k["pod"] = 7 }), "malformed"},
		{"method none", func() []byte {
			tok, err := jwt.NewWithClaims(jwt.SigningMethodNone, projected(now)).SignedString(jwt.UnsafeAllowNoneSignatureType)
			if err != nil {
				t.Fatal(err)
			}
			return []byte(tok)
		}(), "no known key"},
		{"not a token", []byte("x"), "malformed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			user, err := set.verify(tt.in, func() time.Time { return now })
			if tt.want == "" && (err != nil || user != owner) {
				t.Errorf("verify() = %q, %v", user, err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("verify() = %q, %v, want a refusal with %q", user, err, tt.want)
			}
		})
	}
}

func TestParsePublishedRefuses(t *testing.T) {
	s := newSigner(t, elliptic.P256(), jwt.SigningMethodES256, "a")
	good := jwksOf(t, s)
	for name, in := range map[string][2][]byte{
		"no issuer":     {[]byte(`{}`), good},
		"no document":   {[]byte(`x`), good},
		"no set":        {[]byte(`{"issuer":"a"}`), []byte(`x`)},
		"no usable key": {[]byte(`{"issuer":"a"}`), jwksOf(t)},
		"too large":     {[]byte(`{"issuer":"a"}`), make([]byte, maxKeyFile+1)},
	} {
		if _, err := parsePublished(in[0], in[1]); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// asked is an authenticator that does what it is told.
type asked struct {
	calls  atomic.Int64
	answer func(ctx context.Context) (string, error)
}

func (a *asked) Review(ctx context.Context, _ []byte) (string, error) {
	a.calls.Add(1)
	return a.answer(ctx)
}

func nobody(context.Context) (string, error) { return "", ErrUnreachable }

// The story of an outage: online, away, back; keys that get too old.
func TestFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, elliptic.P256(), jwt.SigningMethodES256, "a")
		reg := prometheus.NewPedanticRegistry()
		keys := NewKeys(nil, time.Hour, time.Now, reg)
		kube := &asked{answer: func(context.Context) (string, error) { return "online", nil }}
		f := NewFallback(kube, keys, reg)
		tok := s.mint(t, projected(time.Now()))
		review := func() (string, error) { return f.Review(t.Context(), tok) }
		expect := func(step, user string, want error) {
			t.Helper()
			if got, err := review(); got != user || !errors.Is(err, want) {
				t.Errorf("%s: %q, %v, want %q, %v", step, got, err, user, want)
			}
		}

		expect("online", "online", nil)
		kube.answer = nobody
		expect("away, no keys", "", ErrUnreachable)

		set, err := parsePublished([]byte(`{"issuer":"`+issuerURL+`"}`), jwksOf(t, s))
		if err != nil {
			t.Fatal(err)
		}
		set.at = time.Now()
		keys.last.Store(set)
		before := kube.calls.Load()
		for range 100 {
			expect("away", owner, nil)
		}
		if n := kube.calls.Load() - before; n > 1 {
			t.Errorf("the API server was asked %d times while it rested", n)
		}
		// What the API server says goes, however much the keys would allow.
		time.Sleep(restFor) //nolint:forbidigo // virtual time
		kube.answer = func(context.Context) (string, error) { return "", ErrInvalid }
		expect("back, and it refuses", "", ErrInvalid)

		// It hangs: the keys help after a short while.
		kube.answer = func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		at := time.Now()
		expect("hangs", owner, nil)
		if d := time.Since(at); d != tryFor {
			t.Errorf("waited %s, want %s", d, tryFor)
		}
		// A caller that gives up is no sign of an outage.
		time.Sleep(restFor) //nolint:forbidigo // virtual time
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.Review(ctx, tok); !errors.Is(err, context.Canceled) {
			t.Errorf("Review() for one who left = %v", err)
		}

		kube.answer = nobody
		bad := projected(time.Now())
		delete(bad, "kubernetes.io")
		tok = s.mint(t, bad)
		expect("away, and not to be judged offline", "", ErrUnreachable)
		tok = s.mint(t, projected(time.Now().Add(2*time.Hour)))
		time.Sleep(2 * time.Hour) //nolint:forbidigo // virtual time
		expect("keys are too old", "", ErrUnreachable)
		for result, want := range map[string]float64{"accepted": 101, "refused": 1, "no_keys": 2} {
			if got := testutil.ToFloat64(f.count.WithLabelValues(result)); got != want {
				t.Errorf("%s = %v, want %v", result, got, want)
			}
		}
	})
}

// flaky publishes when it likes.
type flaky struct {
	calls atomic.Int64
	fails int64
	jwks  []byte
}

func (f *flaky) Discovery(context.Context) ([]byte, error) {
	if f.calls.Add(1) <= f.fails {
		return nil, errors.New("away")
	}
	return []byte(`{"issuer":"` + issuerURL + `"}`), nil
}
func (f *flaky) JWKS(context.Context) ([]byte, error) { return f.jwks, nil }

func TestKeysAreKeptFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &flaky{fails: 3, jwks: jwksOf(t, newSigner(t, elliptic.P256(), jwt.SigningMethodES256, "a"))}
		k := NewKeys(from, time.Hour, time.Now, prometheus.NewPedanticRegistry())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = k.Run(ctx) }()
		time.Sleep(leastPause * 8) //nolint:forbidigo // virtual time
		synctest.Wait()
		if k.usable(time.Now()) == nil {
			t.Fatal("no keys after three failures")
		}
		seen := from.calls.Load()
		time.Sleep(time.Hour) //nolint:forbidigo // virtual time
		synctest.Wait()
		if n := from.calls.Load() - seen; n < 11 || n > 14 {
			t.Errorf("asked %d times in an hour, want about 12", n)
		}
		cancel()
		<-done
	})
}

// What counts as an API server that cannot be asked, over HTTP.
func TestUnreachableOverHTTP(t *testing.T) {
	code := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte("upstream"))
	}))
	defer srv.Close()
	api, err := Connect(&rest.Config{Host: srv.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	for c, want := range map[int]bool{500: true, 503: true, 504: true, 401: false, 403: false, 404: false, 422: false} {
		code = c
		if _, err := (&Kube{Reviews: api}).Review(t.Context(), []byte("x")); errors.Is(err, ErrUnreachable) != want {
			t.Errorf("%d: %v, want unreachable %t", c, err, want)
		}
	}
	srv.Close()
	if _, err := (&Kube{Reviews: api}).Review(t.Context(), []byte("x")); !errors.Is(err, ErrUnreachable) {
		t.Errorf("no server: %v, want unreachable", err)
	}
}

func FuzzPublished(f *testing.F) {
	s := newSigner(f, elliptic.P256(), jwt.SigningMethodES256, "a")
	f.Add([]byte(`{"issuer":"a"}`), jwksOf(f, s), s.mint(f, projected(time.Now())))
	f.Fuzz(func(t *testing.T, discovery, jwks, tok []byte) {
		p, err := parsePublished(discovery, jwks)
		if err != nil {
			return
		}
		if len(p.keys) == 0 || p.issuer == "" {
			t.Error("nothing published and no error")
		}
		_, _ = p.verify(tok, time.Now)
	})
}
