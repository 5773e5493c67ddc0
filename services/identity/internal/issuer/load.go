// Package issuer holds the signing certificate that is in use.
//
// One goroutine (Holder.Run) loads; any number of requests read what is
// loaded. What cannot be used never replaces what can.
package issuer

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weftmesh/weft/services/identity/internal/issue"
)

// Files says where an issuer and the trust anchors are.
type Files struct {
	Dir     string
	Scheme  string // linkerd.io/tls or kubernetes.io/tls: how the files in Dir are named
	Anchors string // a PEM bundle
}

// maxFile bounds each file read; a real one has some kilobytes.
const maxFile = 1 << 20

// content is what the files held at one moment. Files are read before they are
// looked at, so that the content that was judged is the content that is used.
type content struct {
	crt, key, anchors []byte
}

// hash tells one content from another.
func (c content) hash() [32]byte {
	h := sha256.New()
	for _, b := range [][]byte{c.crt, c.key, c.anchors} {
		fmt.Fprintf(h, "%d:", len(b))
		h.Write(b)
	}
	return [32]byte(h.Sum(nil))
}

// names are the paths of certificate and key. In a mounted Secret both are
// links through ..data: resolved once, so that a swap between the two reads
// cannot pair an old certificate with a new key.
func (f Files) names() (crt, key string) {
	dir := f.Dir
	if real, err := filepath.EvalSymlinks(filepath.Join(dir, "..data")); err == nil {
		dir = real
	}
	if f.Scheme == "linkerd.io/tls" {
		return filepath.Join(dir, "crt.pem"), filepath.Join(dir, "key.pem")
	}
	return filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
}

func (f Files) read() (content, error) {
	crt, key := f.names()
	var (
		c   content
		err error
	)
	if c.crt, err = readFile(crt); err != nil {
		return content{}, fmt.Errorf("reading the issuer's certificate: %w", err)
	}
	if c.key, err = readFile(key); err != nil {
		return content{}, fmt.Errorf("reading the issuer's key: %w", err)
	}
	if c.anchors, err = readFile(f.Anchors); err != nil {
		return content{}, fmt.Errorf("reading the trust anchors: %w", err)
	}
	return c, nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return os.ReadFile(path)
}

// parse makes an issuer of the files' content. Anchors that are damaged or of
// a kind that the mesh does not take are left out and counted, for one bad
// certificate must not end the trust in the good ones.
func (c content) parse(now time.Time) (*issue.Issuer, int, error) {
	chain, bad := Certificates(c.crt)
	if bad > 0 || len(chain) == 0 {
		return nil, 0, fmt.Errorf("issuer's certificate file: %d certificates, %d damaged", len(chain), bad)
	}
	key, err := privateKey(c.key)
	if err != nil {
		return nil, 0, err
	}
	all, bad := Certificates(c.anchors)
	var anchors []*x509.Certificate
	var why error
	for _, a := range all {
		if err := checkAnchor(a); err != nil {
			bad++
			why = err
			continue
		}
		anchors = append(anchors, a)
	}
	if len(anchors) == 0 {
		return nil, bad, errors.Join(errors.New("no usable certificate among the trust anchors"), why)
	}
	out := &issue.Issuer{Chain: chain, Key: key, Anchors: anchors}
	if err := check(out, now); err != nil {
		return nil, bad, err
	}
	return out, bad, nil
}

// check keeps Linkerd's rules for issuers: a P-256 authority whose key is at
// hand and which leads to an anchor.
func check(i *issue.Issuer, now time.Time) error {
	cert := i.Chain[0]
	pub, ok := cert.PublicKey.(*ecdsa.PublicKey)
	switch {
	case !ok || pub.Curve != elliptic.P256():
		return errors.New("issuer's key is not ECDSA P-256")
	case !cert.IsCA:
		return errors.New("issuer's certificate is not an authority")
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("issuer's certificate may not sign certificates")
	case cert.SignatureAlgorithm != x509.ECDSAWithSHA256 && cert.SignatureAlgorithm != x509.SHA256WithRSA:
		return fmt.Errorf("issuer's certificate is signed with %s: ECDSA-SHA256 or SHA256-RSA is needed", cert.SignatureAlgorithm)
	case !pub.Equal(i.Key.Public()):
		return errors.New("issuer's key does not belong to its certificate")
	}
	return i.Verify(now)
}

func checkAnchor(c *x509.Certificate) error {
	switch k := c.PublicKey.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return nil
		}
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits == 2048 || bits == 4096 {
			return nil
		}
	}
	return fmt.Errorf("trust anchor %q: its key is neither ECDSA P-256 nor RSA of 2048 or 4096 bits", c.Subject.CommonName)
}

// Certificates reads PEM leniently: blocks that are not certificates are
// passed over, damaged certificates are counted, and every one comes once.
func Certificates(b []byte) (good []*x509.Certificate, bad int) {
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			bad++
			continue
		}
		twice := false
		for _, g := range good {
			twice = twice || bytes.Equal(g.Raw, c.Raw)
		}
		if !twice {
			good = append(good, c)
		}
	}
	return good, bad
}

// privateKey reads the first private key of a PEM file. Its errors must not
// quote the file.
func privateKey(b []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "EC PRIVATE KEY":
			k, err := x509.ParseECPrivateKey(block.Bytes)
			if err != nil {
				return nil, errors.New("issuer's key cannot be parsed")
			}
			return k, nil
		case "PRIVATE KEY":
			k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, errors.New("issuer's key cannot be parsed")
			}
			s, ok := k.(crypto.Signer)
			if !ok {
				return nil, errors.New("issuer's key cannot sign")
			}
			return s, nil
		}
	}
	return nil, errors.New("no private key in the issuer's key file")
}
