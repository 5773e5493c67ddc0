package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/services/kit/say"
)

// Authority is a certificate that signs others. Key is nil where only the
// certificate is known.
type Authority struct {
	Cert  *x509.Certificate
	Chain []*x509.Certificate // what leads from Cert to its anchor; usually nothing
	Key   *ecdsa.PrivateKey
}

// skew is how far the clocks of a cluster's machines may be apart.
const skew = time.Minute

// NewAnchor makes a self-signed P-256 root.
func NewAnchor(name string, now time.Time, life time.Duration) (*Authority, error) {
	cert, key, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-skew), NotAfter: now.Add(life),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil, nil)
	if err != nil {
		return nil, err
	}
	return &Authority{Cert: cert, Key: key}, nil
}

// NewIssuer makes an authority that signs leaves only. It ends no later than a.
func (a *Authority) NewIssuer(name string, now time.Time, life time.Duration) (*Authority, error) {
	if a.Key == nil {
		return nil, errors.New("the key of the trust anchor is not known")
	}
	end := now.Add(life)
	if a.Cert.NotAfter.Before(end) {
		end = a.Cert.NotAfter
	}
	cert, key, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-skew), NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, MaxPathLen: 0, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, a.Cert, a.Key)
	if err != nil {
		return nil, err
	}
	return &Authority{Cert: cert, Key: key}, nil
}

// PEM is the certificate and what belongs to its chain.
func (a *Authority) PEM() string {
	var text strings.Builder
	text.WriteString(certPEM(a.Cert))
	for _, c := range a.Chain {
		text.WriteString(certPEM(c))
	}
	return text.String()
}

// KeyPEM is the private key. It belongs in a Secret or a file of mode 0600, and
// never on a terminal.
func (a *Authority) KeyPEM() (string, error) { return keyPEM(a.Key) }

// Print is the certificate's SHA-256 fingerprint in hex.
func Print(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// Bundle reads PEM leniently: comments, blank lines and other blocks are passed
// over, damaged certificates counted, and each certificate comes once.
func Bundle(text string) (good []*x509.Certificate, bad int) {
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			bad++
			continue
		}
		if !slices.ContainsFunc(good, c.Equal) {
			good = append(good, c)
		}
	}
	return good, bad
}

// EncodeBundle writes certificates one after the other.
func EncodeBundle(all []*x509.Certificate) string {
	var b strings.Builder
	for _, c := range all {
		b.WriteString(certPEM(c))
	}
	return b.String()
}

// ParseKey reads an ECDSA P-256 key. Its errors don't quote what it read.
func ParseKey(b []byte) (*ecdsa.PrivateKey, error) {
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch block.Type {
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "ENCRYPTED PRIVATE KEY":
			return nil, errors.New("the key is encrypted")
		default:
			continue
		}
		if err != nil {
			return nil, errors.New("the key is damaged")
		}
		if ec, ok := key.(*ecdsa.PrivateKey); ok && ec.Curve == elliptic.P256() {
			return ec, nil
		}
		return nil, errors.New("the key is not ECDSA P-256")
	}
	return nil, errors.New("there is no private key in PEM")
}

const maxFile = 1 << 20 // bytes; a real one has some kilobytes

// ReadKey reads a key that only its owner may read.
func ReadKey(path string) (*ecdsa.PrivateKey, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, noFile(path, err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, &say.Problem{
			What: "the key " + path + " is not private", Why: fmt.Sprintf("its mode is %#o: others than its owner may read it", info.Mode().Perm()),
			Next: "chmod 600 " + path + "; if others could really read it, make a new one",
		}
	}
	b, err := readFile(path, info)
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(b)
	if err != nil {
		return nil, &say.Problem{
			What: "the key " + path + " cannot be used", Why: err.Error(),
			Next: "the mesh's authorities have ECDSA P-256 keys, in PEM (`openssl ecparam -name prime256v1 -genkey -noout` makes one)",
		}
	}
	return key, nil
}

// ReadCertificates reads a file in which every certificate must be whole.
func ReadCertificates(path string) ([]*x509.Certificate, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, noFile(path, err)
	}
	b, err := readFile(path, info)
	if err != nil {
		return nil, err
	}
	good, bad := Bundle(string(b))
	if bad > 0 || len(good) == 0 {
		return nil, &say.Problem{
			What: "the certificates in " + path + " cannot be used", Why: fmt.Sprintf("%d are whole, %d damaged", len(good), bad),
			Next: "give a file with certificates in PEM",
		}
	}
	return good, nil
}

// ReadAuthority reads a certificate, what follows it in its file, and its key.
func ReadAuthority(certFile, keyFile string) (*Authority, error) {
	certs, err := ReadCertificates(certFile)
	if err != nil {
		return nil, err
	}
	key, err := ReadKey(keyFile)
	if err != nil {
		return nil, err
	}
	return Pair(certs, key, certFile+" and "+keyFile)
}

// Pair says whether certificates and key make an authority; where names them.
func Pair(certs []*x509.Certificate, key *ecdsa.PrivateKey, where string) (*Authority, error) {
	bad := func(why, next string) error {
		return &say.Problem{What: where + " are no issuer", Why: why, Next: next}
	}
	cert := certs[0]
	pub, ok := cert.PublicKey.(*ecdsa.PublicKey)
	switch {
	case !ok || pub.Curve != elliptic.P256():
		return nil, bad("the certificate's key is not ECDSA P-256", "make one with a P-256 key")
	case !pub.Equal(key.Public()):
		return nil, bad("the key does not belong to the first certificate", "put the issuer's own certificate first, and give its key")
	case !cert.IsCA || cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, bad("the certificate may not sign others", "make one with CA:TRUE and the key usage keyCertSign")
	case cert.SignatureAlgorithm != x509.ECDSAWithSHA256 && cert.SignatureAlgorithm != x509.SHA256WithRSA:
		return nil, bad("it is signed with "+cert.SignatureAlgorithm.String(), "sign it with ECDSA-SHA256 or SHA256-RSA")
	}
	return &Authority{Cert: cert, Chain: certs[1:], Key: key}, nil
}

// Leads says whether a chain leads to one of the anchors at this time.
func Leads(chain, anchors []*x509.Certificate, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("there is no certificate")
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, a := range anchors {
		roots.AddCert(a)
	}
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}

// WriteKey writes a key to a new file that only its owner may read.
func WriteKey(path string, key *ecdsa.PrivateKey) error {
	text, err := keyPEM(key)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return &say.Problem{What: path + " exists", Why: "a key is never written over another", Next: "name another file, or move that one away"}
	}
	if err != nil {
		return fmt.Errorf("writing a key: %w", err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing a key: %w", err)
	}
	return nil
}

func readFile(path string, info os.FileInfo) ([]byte, error) {
	if info.Size() > maxFile {
		return nil, &say.Problem{What: path + " is too large", Why: fmt.Sprintf("it has %d bytes", info.Size()), Next: "give a file in PEM"}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, noFile(path, err)
	}
	return bytes.TrimSpace(b), nil
}

func noFile(path string, err error) error {
	why := err.Error()
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		why = pathErr.Err.Error()
	}
	return &say.Problem{What: "the file " + path + " cannot be read", Why: why, Next: "correct the path", Err: err}
}
