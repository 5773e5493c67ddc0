// Package pki makes the certificates of a test cluster: two authorities, a leaf
// for each component, and kubeconfig files that hold them. Keys are P-256 and
// live for a year; they protect nothing but tests.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key in PEM.
type Pair struct{ Cert, Key []byte }

const (
	life = 365 * 24 * time.Hour
	// before lets a machine's clock be behind the one that signed.
	before = time.Hour
)

// NewAuthority makes a root of its own.
func NewAuthority(name string) (*Authority, error) {
	key, template, err := newKey(name)
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading authority %s: %w", name, err)
	}
	return &Authority{cert, key}, nil
}

// Pair is the authority's own certificate and key.
func (a *Authority) Pair() (Pair, error) { return encode(a.cert.Raw, a.key) }

// Pool holds the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Who is the subject of a leaf: the API server takes User and Group from it.
type Who struct {
	User  string
	Group string   // may be empty
	Names []string // DNS names and IP addresses that it serves at
}

// Leaf signs a certificate that serves both ends of a connection.
func (a *Authority) Leaf(who Who) (Pair, error) {
	key, template, err := newKey(who.User)
	if err != nil {
		return Pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	if who.Group != "" {
		template.Subject.Organization = []string{who.Group}
	}
	for _, name := range who.Names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("signing a certificate for %s: %w", who.User, err)
	}
	return encode(der, key)
}

func newKey(name string) (*ecdsa.PrivateKey, *x509.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key for %s: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("making a serial number: %w", err)
	}
	now := time.Now()
	return key, &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-before),
		NotAfter:     now.Add(life),
	}, nil
}

func encode(der []byte, key *ecdsa.PrivateKey) (Pair, error) {
	k, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encoding a key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: k}),
	}, nil
}

// Open reads the authority that is kept in dir under the name, or makes it and
// keeps it there.
func Open(dir, name string) (*Authority, error) {
	cert, key := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	_, err := os.Stat(cert)
	if errors.Is(err, fs.ErrNotExist) {
		a, err := NewAuthority(name)
		if err != nil {
			return nil, err
		}
		p, err := a.Pair()
		if err != nil {
			return nil, err
		}
		return a, p.Write(dir, name)
	}
	c, err := readBlock(cert)
	if err != nil {
		return nil, err
	}
	k, err := readBlock(key)
	if err != nil {
		return nil, err
	}
	a := &Authority{}
	if a.cert, err = x509.ParseCertificate(c); err != nil {
		return nil, fmt.Errorf("reading authority %s: %w", name, err)
	}
	if a.key, err = x509.ParseECPrivateKey(k); err != nil {
		return nil, fmt.Errorf("reading the key of authority %s: %w", name, err)
	}
	return a, nil
}

func readBlock(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading an authority: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("reading an authority: %s holds no PEM block", file)
	}
	return block.Bytes, nil
}
