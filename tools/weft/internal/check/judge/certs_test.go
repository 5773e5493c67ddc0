package judge

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// make1 makes a self-signed CA with a key, or one signed by another.
func make1(t *testing.T, key crypto.Signer, alg x509.SignatureAlgorithm, parent *x509.Certificate, signer crypto.Signer) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "ca"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, SignatureAlgorithm: alg,
	}
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ec(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func rsaKey(t *testing.T, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func one(c *x509.Certificate) Bundle { return Bundle{From: "X", Certs: []*x509.Certificate{c}} }

func TestCrypto(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r2048 := rsaKey(t, 2048)
	root2048 := make1(t, r2048, x509.SHA256WithRSA, nil, nil)
	for _, tt := range []struct {
		name           string
		cert           *x509.Certificate
		anchor, issuer string // what is wrong as one, and as the other
	}{
		{"P-256", make1(t, ec(t, elliptic.P256()), x509.ECDSAWithSHA256, nil, nil), "", ""},
		{"P-256 signed by RSA", make1(t, ec(t, elliptic.P256()), x509.SHA256WithRSA, root2048, r2048), "", ""},
		{
			"P-256 with SHA-384", make1(t, ec(t, elliptic.P256()), x509.ECDSAWithSHA384, nil, nil),
			"signed with ECDSA-SHA384", "signed with ECDSA-SHA384",
		},
		{"P-384", make1(t, ec(t, elliptic.P384()), x509.ECDSAWithSHA256, nil, nil), "curve P-384", "curve P-384"},
		{"RSA 2048", root2048, "", "type RSA, not ECDSA"},
		{"RSA 3072", make1(t, rsaKey(t, 3072), x509.SHA256WithRSA, nil, nil), "3072 bits", "type RSA"},
		{"RSA with SHA-512", make1(t, r2048, x509.SHA512WithRSA, nil, nil), "SHA512-RSA", "type RSA"},
		{"Ed25519", make1(t, ed, x509.PureEd25519, nil, nil), "type Ed25519", "type Ed25519"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wrong(t, "Anchors()", Anchors(one(tt.cert)), tt.anchor)
			wrong(t, "Issuer()", Issuer(one(tt.cert)), tt.issuer)
		})
	}
}

// wrong compares an answer with a part of what it should say; "" is a good one.
func wrong(t *testing.T, what string, err error, part string) {
	t.Helper()
	switch {
	case part == "" && err != nil:
		t.Errorf("%s = %v, want nil", what, err)
	case part != "" && (err == nil || !strings.Contains(err.Error(), part)):
		t.Errorf("%s = %v, want it to say %q", what, err, part)
	}
}

func TestIssued(t *testing.T) {
	rootKey, key := ec(t, elliptic.P256()), ec(t, elliptic.P256())
	root := make1(t, rootKey, x509.ECDSAWithSHA256, nil, nil)
	root.Subject.CommonName = "root"
	stranger := make1(t, key, x509.ECDSAWithSHA256, nil, nil)
	wrong(t, "a root that is its own anchor", Issued(one(root), one(root), now), "")
	wrong(t, "another's issuer", Issued(one(stranger), one(root), now), "does not lead to X")
	leaf := *root
	leaf.IsCA = false
	wrong(t, "a leaf", Issued(one(&leaf), one(root), now), "is not a CA")
}

func TestValidBefore(t *testing.T) {
	c := make1(t, ec(t, elliptic.P256()), x509.ECDSAWithSHA256, nil, nil)
	wrong(t, "now", Valid(one(c), now, ""), "")
	wrong(t, "early", Valid(one(c), now.Add(-2*time.Hour), ""), "is not valid before 2026-11-30T11:00:00Z")
	wrong(t, "late", Valid(one(c), now.Add(2*time.Hour), ""), "expired on 2026-11-30T13:00:00Z")
}

func TestSameAnchorsIsASetComparison(t *testing.T) {
	a := make1(t, ec(t, elliptic.P256()), x509.ECDSAWithSHA256, nil, nil)
	b := make1(t, ec(t, elliptic.P256()), x509.ECDSAWithSHA256, nil, nil)
	ab, ba, aab := Bundle{Certs: []*x509.Certificate{a, b}}, Bundle{Certs: []*x509.Certificate{b, a}}, Bundle{Certs: []*x509.Certificate{a, a, b}}
	if !SameAnchors(ab, ba) || !SameAnchors(ab, aab) || SameAnchors(ab, one(a)) {
		t.Error("SameAnchors() heeds order or repetition, or not what is missing")
	}
}

func TestReadPairNeverShowsTheKey(t *testing.T) {
	c := make1(t, ec(t, elliptic.P256()), x509.ECDSAWithSHA256, nil, nil)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	der, err := x509.MarshalPKCS8PrivateKey(ec(t, elliptic.P256()))
	if err != nil {
		t.Fatal(err)
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	_, err = ReadPair("X", cert, key)
	wrong(t, "a key of another", err, "does not match")
	if strings.Contains(err.Error(), strings.Split(string(key), "\n")[1]) {
		t.Error("the error shows the key")
	}
	_, err = ReadPair("X", cert, nil)
	wrong(t, "no key", err, "missing")
}

func FuzzReadBundle(f *testing.F) {
	f.Add([]byte("text\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if b, err := ReadBundle("X", text); err == nil && len(b.Certs) == 0 {
			t.Error("no certificate and no error")
		}
	})
}
