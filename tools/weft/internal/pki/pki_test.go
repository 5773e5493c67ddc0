package pki

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestIssuerVerifiesAgainstAnchors(t *testing.T) {
	set, err := New(t.TempDir(), "cluster.local", "linkerd")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(set.Anchors)) {
		t.Fatal("no certificate in the anchors")
	}
	for _, file := range []string{filepath.Join(set.IssuerDir, "tls.crt"), set.WebhookCert} {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(body)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
			t.Errorf("%s: %v", filepath.Base(file), err)
		}
	}
	info, err := os.Stat(filepath.Join(set.IssuerDir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the issuer's key has mode %v, want 0600", info.Mode().Perm())
	}
}

func TestTokensAreWrittenByAccount(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir, "cluster.local", "linkerd", []string{"shop/web"}); err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(filepath.Join(dir, "tokens", "shop", "web"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(body), "."); n != 2 {
		t.Errorf("the token has %d dots, want 2 (RFC 7519)", n)
	}
	for _, bad := range []string{"web", "/web", "shop/", "shop/web/x"} {
		if err := write(t.TempDir(), "cluster.local", "linkerd", []string{bad}); err == nil {
			t.Errorf("--token %s was taken", bad)
		}
	}
	if err := write("", "cluster.local", "linkerd", nil); err == nil {
		t.Error("an empty --dir was taken")
	}
}
