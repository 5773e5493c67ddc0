package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// newBed makes an authority, a server that goes by host, and a client.
func newBed(t *testing.T, host string) *bed {
	t.Helper()
	b := &bed{t: t, dir: t.TempDir(), roots: x509.NewCertPool()}
	now := time.Now()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	sign := func(c, parent *x509.Certificate, public *ecdsa.PublicKey, by *ecdsa.PrivateKey) *x509.Certificate {
		c.NotBefore, c.NotAfter = now.Add(-time.Hour), now.Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, c, parent, public, by)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	caKey := key()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bus"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	ca = sign(ca, ca, &caKey.PublicKey, caKey)
	b.roots.AddCert(ca)
	// The setup's own connection goes by 127.0.0.1.
	serverKey := key()
	server := sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{host}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca, &serverKey.PublicKey, caKey)
	b.server = tls.Certificate{Certificate: [][]byte{server.Raw}, PrivateKey: serverKey}
	clientKey := key()
	client := sign(&x509.Certificate{
		SerialNumber: big.NewInt(3), DNSNames: []string{"cli.bus.weft"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, &clientKey.PublicKey, caKey)
	der, err := x509.MarshalPKCS8PrivateKey(clientKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"ca.crt": {Type: "CERTIFICATE", Bytes: ca.Raw}, "tls.crt": {Type: "CERTIFICATE", Bytes: client.Raw}, "tls.key": {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(filepath.Join(b.dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return b
}
