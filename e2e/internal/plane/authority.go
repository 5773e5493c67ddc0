package plane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"testing"
	"time"

	identitypb "github.com/linkerd/linkerd2-proxy-api/go/identity"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// authority signs the certificates of proxies. Whoever asks gets one: it is a
// test's.
type authority struct {
	identitypb.UnimplementedIdentityServer
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	anchors string

	mu     sync.Mutex
	signed int
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root.linkerd.cluster.local"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: key, anchors: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

// Signed is how many certificates there have been.
func (a *authority) Signed() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.signed
}

// Certify signs what a proxy asks for.
func (a *authority) Certify(_ context.Context, r *identitypb.CertifyRequest) (*identitypb.CertifyResponse, error) {
	csr, err := x509.ParseCertificateRequest(r.GetCertificateSigningRequest())
	if err != nil {
		return nil, fmt.Errorf("reading a request: %w", err)
	}
	a.mu.Lock()
	a.signed++
	serial, until := int64(a.signed+1), time.Now().Add(time.Hour)
	a.mu.Unlock()
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: r.GetIdentity()}, DNSNames: []string{r.GetIdentity()},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, csr.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	return &identitypb.CertifyResponse{LeafCertificate: der, ValidUntil: timestamppb.New(until)}, nil
}
