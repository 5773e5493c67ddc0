package token_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weftmesh/weft/services/identity/internal/token"
)

var now = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)

const user = "system:serviceaccount:pottery:kiln"

// keys of each kind; a mesh would have one.
type keys struct {
	ec  *ecdsa.PrivateKey
	rsa *rsa.PrivateKey
	ed  ed25519.PrivateKey
}

func newKeys(t testing.TB) keys {
	t.Helper()
	ec, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	rs, err2 := rsa.GenerateKey(rand.Reader, 2048)
	_, ed, err3 := ed25519.GenerateKey(rand.Reader)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return keys{ec: ec, rsa: rs, ed: ed}
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// jwks is the public half as a JWK set, with keys in it that must be passed over.
func (k keys) jwks(t testing.TB) []byte {
	t.Helper()
	point, err := k.ec.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{"keys": []map[string]string{
		{"kty": "oct", "k": "AAAA", "kid": "shared"},
		{"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"},
		{"kty": "EC", "crv": "P-256", "use": "enc", "x": "AA", "y": "AA"},
		{"kty": "EC", "crv": "P-256", "kid": "ec", "use": "sig", "x": b64(point[1:33]), "y": b64(point[33:])},
		{"kty": "RSA", "kid": "rsa", "alg": "RS256", "n": b64(k.rsa.N.Bytes()), "e": b64([]byte{1, 0, 1})},
		{"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": b64(k.ed.Public().(ed25519.PublicKey))},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mint(t testing.TB, method jwt.SigningMethod, key any, kid string, claims jwt.MapClaims) []byte {
	t.Helper()
	tok := jwt.NewWithClaims(method, claims)
	if kid != "" {
		tok.Header["kid"] = kid
	}
	s, err := tok.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(s)
}

func good() jwt.MapClaims {
	return jwt.MapClaims{"aud": []string{token.Audience}, "exp": now.Add(time.Hour).Unix(), "sub": user}
}

func TestVerify(t *testing.T) {
	k := newKeys(t)
	set, err := token.ParseKeys(k.jwks(t))
	if err != nil {
		t.Fatal(err)
	}
	other := newKeys(t)
	change := func(f func(jwt.MapClaims)) []byte {
		c := good()
		f(c)
		return mint(t, jwt.SigningMethodES256, k.ec, "ec", c)
	}
	tests := []struct {
		name string
		in   []byte
		want string // user, or part of the error
		err  error
	}{
		{"ES256", mint(t, jwt.SigningMethodES256, k.ec, "ec", good()), user, nil},
		{"ES256 without kid", mint(t, jwt.SigningMethodES256, k.ec, "", good()), user, nil},
		{"RS256", mint(t, jwt.SigningMethodRS256, k.rsa, "rsa", good()), user, nil},
		{"EdDSA", mint(t, jwt.SigningMethodEdDSA, k.ed, "ed", good()), user, nil},
		{"audience as a string", change(func(c jwt.MapClaims) { c["aud"] = token.Audience }), user, nil},
		{"foreign key", mint(t, jwt.SigningMethodES256, other.ec, "ec", good()), "no known key", token.ErrInvalid},
		{"unknown kid", mint(t, jwt.SigningMethodES256, k.ec, "gone", good()), "no known key", token.ErrInvalid},
		{"method none", mint(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "", good()), "no known key", token.ErrInvalid},
		{"public key used as a shared secret", mint(t, jwt.SigningMethodHS256, k.jwks(t), "", good()), "no known key", token.ErrInvalid},
		{"RS512", mint(t, jwt.SigningMethodRS512, k.rsa, "rsa", good()), "no known key", token.ErrInvalid},
		{"other audience", change(func(c jwt.MapClaims) { c["aud"] = "else" }), "audience", token.ErrInvalid},
		{"no audience", change(func(c jwt.MapClaims) { delete(c, "aud") }), "claim is missing", token.ErrInvalid},
		{"expired", change(func(c jwt.MapClaims) { c["exp"] = now.Add(-time.Second).Unix() }), "expired", token.ErrInvalid},
		{"never expires", change(func(c jwt.MapClaims) { delete(c, "exp") }), "claim is missing", token.ErrInvalid},
		{"not yet", change(func(c jwt.MapClaims) { c["nbf"] = now.Add(time.Minute).Unix() }), "not valid yet", token.ErrInvalid},
		{"nobody", change(func(c jwt.MapClaims) { delete(c, "sub") }), "", token.ErrUnauthenticated},
		{"garbage", []byte("a.b.c"), "malformed", token.ErrInvalid},
		{"empty", nil, "malformed", token.ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := token.Verify(tt.in, set, func() time.Time { return now })
			if !errors.Is(err, tt.err) || (tt.err == nil) != (err == nil) {
				t.Fatalf("Verify() = %q, %v, want error %v", got, err, tt.err)
			}
			if err == nil && got != tt.want || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Verify() = %q, %v, want %q", got, err, tt.want)
			}
			if err != nil && len(tt.in) > 20 && strings.Contains(err.Error(), string(tt.in[:20])) {
				t.Errorf("error quotes the token: %v", err)
			}
		})
	}
}

func pemOf(t testing.TB, keys ...crypto.PublicKey) []byte {
	t.Helper()
	var out []byte
	for _, k := range keys {
		der, err := x509.MarshalPKIXPublicKey(k)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	return out
}

func TestParseKeysPEM(t *testing.T) {
	k := newKeys(t)
	got, err := token.ParseKeys(pemOf(t, k.ec.Public(), k.rsa.Public(), k.ed.Public()))
	if err != nil {
		t.Fatal(err)
	}
	var methods []string
	for _, key := range got {
		methods = append(methods, key.Method)
	}
	if s := strings.Join(methods, " "); s != "ES256 RS256 EdDSA" {
		t.Errorf("methods = %s", s)
	}
}

func TestParseKeysRefuses(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Skip("the toolchain makes no small RSA keys:", err)
	}
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(p224)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string][]byte{
		"empty":              nil,
		"not JSON":           []byte("hello"),
		"no keys":            []byte(`{"keys":[]}`),
		"only unknown keys":  []byte(`{"keys":[{"kty":"oct","k":"AAAA"}]}`),
		"point off curve":    []byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"AQ","y":"AQ"}]}`),
		"long coordinate":    []byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"` + b64(make([]byte, 33)) + `","y":"AQ"}]}`),
		"short Ed25519":      []byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AQ"}]}`),
		"huge exponent":      []byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQABAQAB"}]}`),
		"small RSA":          pemOf(t, small.Public()),
		"P-224":              pemOf(t, p224.Public()),
		"private key in PEM": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
		"damaged PEM":        pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}),
		"too large":          make([]byte, 2<<20),
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := token.ParseKeys(in); err == nil {
				t.Errorf("ParseKeys() = %d keys, want an error", len(got))
			}
		})
	}
}

// A new key file counts for the next token.
func TestLocalReadsTheFileAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	l := &token.Local{Path: path, Now: func() time.Time { return now }}
	if err := l.Check(); err == nil {
		t.Error("Check() without a file = nil")
	}
	before, after := newKeys(t), newKeys(t)
	tok := mint(t, jwt.SigningMethodES256, after.ec, "", good())
	for _, step := range []struct {
		keys keys
		want error
	}{{before, token.ErrInvalid}, {after, nil}} {
		if err := os.WriteFile(path, pemOf(t, step.keys.ec.Public()), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Review(t.Context(), tok); !errors.Is(err, step.want) {
			t.Errorf("Review() = %v, want %v", err, step.want)
		}
	}
	if err := l.Check(); err != nil {
		t.Errorf("Check() = %v", err)
	}
}

func FuzzParseKeys(f *testing.F) {
	k := newKeys(f)
	f.Add(k.jwks(f))
	f.Add(pemOf(f, k.ec.Public()))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"","e":""}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := token.ParseKeys(b)
		if err == nil && len(got) == 0 {
			t.Error("no key and no error")
		}
	})
}

func FuzzVerify(f *testing.F) {
	k := newKeys(f)
	set, err := token.ParseKeys(k.jwks(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("a.b.c"))
	f.Add([]byte("eyJhbGciOiJub25lIn0.e30."))
	f.Fuzz(func(t *testing.T, tok []byte) {
		if got, err := token.Verify(tok, set, func() time.Time { return now }); err == nil {
			t.Errorf("Verify() = %q for a token nobody signed", got)
		}
	})
}
