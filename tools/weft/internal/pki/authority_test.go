package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/services/kit/say"
)

var now = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)

func anchor(t testing.TB, life time.Duration) *Authority {
	t.Helper()
	a, err := NewAnchor("root.linkerd.cluster.local", now, life)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func keyText(t testing.TB, a *Authority) string {
	t.Helper()
	text, err := a.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestIssuerUnderAnchor(t *testing.T) {
	root := anchor(t, time.Hour)
	issuer, err := root.NewIssuer("identity.linkerd.cluster.local", now, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := Leads([]*x509.Certificate{issuer.Cert}, []*x509.Certificate{root.Cert}, now); err != nil {
		t.Error(err)
	}
	if issuer.Cert.NotAfter.After(root.Cert.NotAfter) {
		t.Errorf("the issuer ends %s, after its anchor", issuer.Cert.NotAfter)
	}
	if _, err := issuer.NewIssuer("below", now, time.Hour); err != nil {
		t.Error(err)
	}
	if _, err := (&Authority{Cert: root.Cert}).NewIssuer("x", now, time.Hour); err == nil {
		t.Error("signed without a key")
	}
}

func TestBundleIsReadLeniently(t *testing.T) {
	a, b := anchor(t, time.Hour), anchor(t, time.Hour)
	text := "# old\r\n" + strings.ReplaceAll(a.PEM(), "\n", "\r\n") + "\n\n" +
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + keyText(t, a) + b.PEM() + a.PEM() + "\n"
	good, bad := Bundle(text)
	if len(good) != 2 || bad != 1 {
		t.Fatalf("%d good, %d bad, want 2 and 1", len(good), bad)
	}
	again, bad := Bundle(EncodeBundle(good))
	if len(again) != 2 || bad != 0 || Print(again[0]) != Print(a.Cert) {
		t.Errorf("written and read again: %d good, %d bad", len(again), bad)
	}
}

func TestReadAuthority(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask is
			t.Fatal(err)
		}
		return path
	}
	root := anchor(t, time.Hour)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(p384)
	if err != nil {
		t.Fatal(err)
	}
	old, err := x509.MarshalECPrivateKey(root.Key)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	crt := file("ca.crt", root.PEM(), 0o644)
	leaf, _, err := sign(&x509.Certificate{NotBefore: now, NotAfter: now.Add(time.Hour)}, root.Cert, root.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, crt, key, want string }{
		{"PKCS#8", crt, file("a.key", keyText(t, root), 0o600), ""},
		{"SEC 1, read-only", crt, file("b.key", block("EC PRIVATE KEY", old), 0o400), ""},
		{"read by the group", crt, file("c.key", keyText(t, root), 0o640), "is not private"},
		{"read by others", crt, file("d.key", keyText(t, root), 0o604), "is not private"},
		{"P-384", crt, file("e.key", block("EC PRIVATE KEY", der), 0o600), "not ECDSA P-256"},
		{"damaged", crt, file("f.key", block("PRIVATE KEY", []byte("x")), 0o600), "damaged"},
		{"encrypted", crt, file("g.key", block("ENCRYPTED PRIVATE KEY", []byte("x")), 0o600), "encrypted"},
		{"another's", crt, file("h.key", keyText(t, anchor(t, time.Hour)), 0o600), "does not belong"},
		{"not there", crt, filepath.Join(dir, "none"), "cannot be read"},
		{"no certificate", file("x.crt", "x", 0o644), filepath.Join(dir, "a.key"), "0 are whole"},
		{"a leaf", file("leaf.crt", certPEM(leaf), 0o644), filepath.Join(dir, "a.key"), "does not belong"},
		{"huge", file("huge.crt", strings.Repeat("x", maxFile+1), 0o644), filepath.Join(dir, "a.key"), "too large"},
	} {
		_, err := ReadAuthority(tt.crt, tt.key)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		problem := (*say.Problem)(nil)
		if err != nil && (!errors.As(err, &problem) || problem.Next == "" || strings.Contains(err.Error(), "BEGIN")) {
			t.Errorf("%s: not in words for a person, or it quotes the file: %v", tt.name, err)
		}
	}
}

func TestWriteKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.key")
	root := anchor(t, time.Hour)
	if err := WriteKey(path, root.Key); err != nil {
		t.Fatal(err)
	}
	got, err := ReadKey(path)
	if err != nil || !got.Equal(root.Key) {
		t.Errorf("read back: %v", err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteKey(path, anchor(t, time.Hour).Key); err == nil {
		t.Error("a key was written over another")
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the first key has changed: %v", err)
	}
}

func FuzzBundle(f *testing.F) {
	f.Add(anchor(f, time.Hour).PEM())
	f.Fuzz(func(t *testing.T, text string) {
		good, _ := Bundle(text)
		if again, bad := Bundle(EncodeBundle(good)); len(again) != len(good) || bad > 0 {
			t.Errorf("%d certificates became %d", len(good), len(again))
		}
	})
}

func FuzzParseKey(f *testing.F) {
	f.Add([]byte(keyText(f, anchor(f, time.Hour))))
	f.Fuzz(func(t *testing.T, b []byte) {
		if key, err := ParseKey(b); err == nil && key.Curve != elliptic.P256() {
			t.Error("a key of another curve")
		}
	})
}
