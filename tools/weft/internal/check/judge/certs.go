package judge

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"
)

// Soon is how close to its end a certificate gets before a warning
// (spec/identity-injector-mirror.md §1.4).
const Soon = 60 * 24 * time.Hour

// Bundle is certificates and the object and key that they were read from.
type Bundle struct {
	From  string // "ConfigMap linkerd/linkerd-identity-trust-roots key ca-bundle.crt"
	Certs []*x509.Certificate
}

// mostCerts bounds a bundle: a trust bundle has two or three.
const mostCerts = 1000

// ReadBundle reads all certificates of a PEM text. Text between them is allowed.
func ReadBundle(from string, text []byte) (Bundle, error) {
	b := Bundle{From: from}
	const next = "put PEM certificates (-----BEGIN CERTIFICATE-----) there"
	for len(text) > 0 && len(b.Certs) < mostCerts {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return b, fault(from, "", fmt.Sprintf("certificate %d cannot be read: %s", len(b.Certs)+1, err), next)
		}
		b.Certs = append(b.Certs, cert)
	}
	if len(b.Certs) == 0 {
		return b, fault(from, "", "has no certificate", next)
	}
	return b, nil
}

// ReadPair reads a certificate with its chain and the key, which must fit. The
// key is looked at and forgotten.
func ReadPair(from string, cert, key []byte) (Bundle, error) {
	if len(bytes.TrimSpace(cert)) == 0 || len(bytes.TrimSpace(key)) == 0 {
		return Bundle{From: from}, fault(from, "", "the certificate or its key is missing", "write both; they belong together")
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		// The error names what is wrong, never what the key is.
		return Bundle{From: from}, fault(from, "", "certificate and key: "+err.Error(), "write a pair that belongs together")
	}
	return ReadBundle(from, cert)
}

// who names a certificate for a person.
func who(c *x509.Certificate) string {
	name := c.Subject.CommonName
	if name == "" {
		name = "without a common name"
	}
	return fmt.Sprintf("%q (serial %s)", name, c.SerialNumber)
}

// Anchors judges the crypto of trust anchors.
func Anchors(b Bundle) error {
	return supported(b, func(c *x509.Certificate) string {
		key, ok := c.PublicKey.(*rsa.PublicKey)
		if !ok {
			return ecdsaWrong(c)
		}
		if bits := key.N.BitLen(); bits != 2048 && bits != 4096 {
			return fmt.Sprintf("has an RSA key of %d bits, not 2048 or 4096", bits)
		}
		if c.SignatureAlgorithm != x509.SHA256WithRSA {
			return fmt.Sprintf("is signed with %s, not SHA256-RSA", c.SignatureAlgorithm)
		}
		return ""
	})
}

// Issuer judges the crypto of an issuer's certificate, the first of b.
func Issuer(b Bundle) error {
	return supported(Bundle{b.From, b.Certs[:1]}, ecdsaWrong)
}

func ecdsaWrong(c *x509.Certificate) string {
	key, ok := c.PublicKey.(*ecdsa.PublicKey)
	switch {
	case !ok:
		return fmt.Sprintf("has a key of type %s, not ECDSA", c.PublicKeyAlgorithm)
	case key.Curve != elliptic.P256():
		return fmt.Sprintf("has a key on the curve %s, not P-256", key.Params().Name)
	case c.SignatureAlgorithm != x509.ECDSAWithSHA256 && c.SignatureAlgorithm != x509.SHA256WithRSA:
		return fmt.Sprintf("is signed with %s, not ECDSA-SHA256 or SHA256-RSA", c.SignatureAlgorithm)
	}
	return ""
}

func supported(b Bundle, wrong func(*x509.Certificate) string) error {
	var f faults
	for _, c := range b.Certs {
		if w := wrong(c); w != "" {
			f.add(b.From, who(c), w)
		}
	}
	return f.err("make it anew with an ECDSA P-256 key and SHA-256")
}

// Valid judges whether each certificate holds now.
func Valid(b Bundle, now time.Time, next string) error {
	var f faults
	for _, c := range b.Certs {
		switch {
		case now.Before(c.NotBefore):
			f.add(b.From, who(c), "is not valid before "+stamp(c.NotBefore)+"; it is "+stamp(now)+" here")
		case now.After(c.NotAfter):
			f.add(b.From, who(c), "expired on "+stamp(c.NotAfter)+"; it is "+stamp(now)+" here")
		}
	}
	return f.err(next)
}

// Lasting judges whether each certificate holds for another 60 days.
func Lasting(b Bundle, now time.Time, next string) error {
	var f faults
	for _, c := range b.Certs {
		if now.Add(Soon).After(c.NotAfter) {
			f.add(b.From, who(c), "will expire on "+stamp(c.NotAfter))
		}
	}
	return f.err(next)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Issued judges whether the first certificate of b leads to one of anchors.
func Issued(b, anchors Bundle, now time.Time) error {
	leaf := b.Certs[0]
	if !leaf.IsCA {
		return fault(b.From, who(leaf), "is not a CA: basicConstraints CA is false", "use a certificate that may issue others")
	}
	if err := chains(b, anchors, now, ""); err != nil {
		return fault(b.From, who(leaf), "does not lead to "+anchors.From+": "+err.Error(),
			"add the issuer's root to the trust anchors, or issue it anew from them (weft identity rotate)")
	}
	return nil
}

// Serves judges whether a server's certificate leads to roots and is for host.
func Serves(b, roots Bundle, now time.Time, host, next string) error {
	if err := chains(b, roots, now, host); err != nil {
		return fault(b.From, who(b.Certs[0]), "does not hold for "+host+" under "+roots.From+": "+err.Error(), next)
	}
	return nil
}

// Holds judges whether a certificate leads to roots, whatever it is for.
func Holds(b, roots Bundle, now time.Time, next string) error {
	if err := chains(b, roots, now, ""); err != nil {
		return fault(b.From, who(b.Certs[0]), "does not lead to "+roots.From+": "+err.Error(), next)
	}
	return nil
}

func chains(b, roots Bundle, now time.Time, host string) error {
	pool, middle := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range roots.Certs {
		pool.AddCert(c)
	}
	for _, c := range b.Certs[1:] {
		middle.AddCert(c)
	}
	_, err := b.Certs[0].Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: middle, CurrentTime: now, DNSName: host, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}

// SameAnchors says whether two bundles trust the same, whatever their order.
func SameAnchors(a, b Bundle) bool {
	return slices.Equal(prints(a), prints(b))
}

func prints(b Bundle) []string {
	var all []string
	for _, c := range b.Certs {
		sum := sha256.Sum256(c.Raw)
		all = append(all, string(sum[:]))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Fingerprint is the annotation linkerd.io/trust-root-sha256 of a bundle's text.
func Fingerprint(text string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
}
