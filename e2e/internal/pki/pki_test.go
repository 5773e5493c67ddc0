package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/e2e/internal/pki"
)

func TestLeafServesAndAsks(t *testing.T) {
	a, err := pki.Open(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := a.Leaf(pki.Who{User: "system:node:n1", Group: "system:nodes", Names: []string{"n1", "10.96.1.11"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(pair.Cert, pair.Key); err != nil {
		t.Errorf("certificate and key are no pair: %v", err)
	}
	leaf := parse(t, pair.Cert)
	for _, name := range []string{"n1", "10.96.1.11"} {
		for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			_, err := leaf.Verify(x509.VerifyOptions{Roots: a.Pool(), DNSName: name, KeyUsages: []x509.ExtKeyUsage{use}})
			if err != nil {
				t.Errorf("as %s for use %d: %v", name, use, err)
			}
		}
	}
	if got, want := leaf.Subject.String(), "CN=system:node:n1,O=system:nodes"; got != want {
		t.Errorf("the subject is %s, want %s", got, want)
	}
	if leaf.IsCA {
		t.Error("a leaf may sign")
	}
}

// TestOpenKeepsTheAuthority: what a second program signs is trusted by who
// trusts the first.
func TestOpenKeepsTheAuthority(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	first, err := pki.Open(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	second, err := pki.Open(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := second.Leaf(pki.Who{User: "late"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = parse(t, pair.Cert).Verify(x509.VerifyOptions{Roots: first.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		t.Error(err)
	}
	key, err := os.Stat(filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	if key.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v", key.Mode())
	}
}

func TestOpenRefusesWhatIsNoAuthority(t *testing.T) {
	for name, text := range map[string]string{
		"no PEM":         "hello",
		"no certificate": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("hello")})),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, end := range []string{".crt", ".key"} {
				if err := os.WriteFile(filepath.Join(dir, "ca"+end), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := pki.Open(dir, "ca"); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dir", "kubeconfig")
	pair := pki.Pair{Cert: []byte("CERT"), Key: []byte("KEY")}
	if err := pki.WriteKubeconfig(file, "https://10.96.1.11:6443", "c1", []byte("CA"), pair); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	want := `apiVersion: v1
kind: Config
clusters:
- name: c1
  cluster:
    server: https://10.96.1.11:6443
    certificate-authority-data: ` + b64("CA") + `
users:
- name: c1
  user:
    client-certificate-data: ` + b64("CERT") + `
    client-key-data: ` + b64("KEY") + `
contexts:
- name: c1
  context: {cluster: c1, user: c1}
current-context: c1
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("kubeconfig (-want +got):\n%s", diff)
	}
}

func TestSigningKey(t *testing.T) {
	dir := t.TempDir()
	if err := pki.WriteSigningKey(dir, "sa"); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"sa.key": "EC PRIVATE KEY", "sa.pub": "PUBLIC KEY"} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if block, rest := pem.Decode(data); block == nil || block.Type != want || strings.TrimSpace(string(rest)) != "" {
			t.Errorf("%s holds no single %s", file, want)
		}
	}
}

func parse(t *testing.T, cert []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(cert)
	if block == nil {
		t.Fatal("no PEM block")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
