// Package issuetest makes authorities, requests and files for tests of the
// identity service. Everything is generated; nothing is read from disk.
package issuetest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/weftmesh/weft/services/identity/internal/issue"
)

// Now is the time at which test authorities are valid.
var Now = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)

// Key is a new P-256 key.
func Key(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Authority is a certificate that may sign, and its key.
type Authority struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// NewAuthority makes an authority that is valid for life from one hour before
// from; parent nil means self-signed. change may be nil.
func NewAuthority(t testing.TB, name string, parent *Authority, from time.Time, life time.Duration, change func(*x509.Certificate)) *Authority {
	t.Helper()
	key := Key(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(from.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: from.Add(-time.Hour), NotAfter: from.Add(life),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if change != nil {
		change(template)
	}
	by, with := template, crypto.Signer(key)
	if parent != nil {
		by, with = parent.Cert, parent.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), with)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{Cert: cert, Key: key}
}

// PEM is the certificate in PEM.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Cert.Raw})
}

// KeyPEM is the key in PEM.
func (a *Authority) KeyPEM(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(a.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Issuer is an issuer under a root, valid at Now for life.
func Issuer(t testing.TB, life time.Duration) *issue.Issuer {
	t.Helper()
	root := NewAuthority(t, "root.linkerd.cluster.local", nil, Now, 10*365*24*time.Hour, nil)
	ca := NewAuthority(t, "identity.linkerd.cluster.local", root, Now, life, nil)
	return &issue.Issuer{Chain: []*x509.Certificate{ca.Cert}, Key: ca.Key, Anchors: []*x509.Certificate{root.Cert}}
}

// Request is a signing request in DER, by key or, if nil, by a new one.
func Request(t testing.TB, template x509.CertificateRequest, key crypto.Signer) []byte {
	t.Helper()
	if key == nil {
		key = Key(t)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// Plain is the request that a proxy makes for name.
func Plain(name string) x509.CertificateRequest {
	return x509.CertificateRequest{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}}
}
