// Package issue decides what a certificate holds and signs it.
//
// It is pure: the request, the issuer, the time and the serial come in, a
// certificate goes out. Nothing here may read a clock or a file, so that every
// rule of issuance can be tested as a table.
package issue

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"time"
)

// Issuer is a loaded signing certificate. It never changes once made, so any
// number of requests may sign with it at once.
type Issuer struct {
	// Chain holds the issuer's certificate, then what followed it in its file.
	Chain []*x509.Certificate
	// Key belongs to the first certificate of Chain.
	Key crypto.Signer
	// Anchors are what peers trust; Chain must lead to one of them.
	Anchors []*x509.Certificate
}

// Verify says whether the issuer leads to an anchor at this time.
func (i *Issuer) Verify(now time.Time) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range i.Anchors {
		roots.AddCert(c)
	}
	for _, c := range i.Chain[1:] {
		between.AddCert(c)
	}
	_, err := i.Chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return fmt.Errorf("verifying the issuer against the trust anchors: %w", err)
	}
	return nil
}

// NotAfter is when the first certificate of the issuer's chain ends.
func (i *Issuer) NotAfter() time.Time {
	end := i.Chain[0].NotAfter
	for _, c := range i.Chain[1:] {
		if c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	return end
}

// AnchorsNotAfter is when the first of the trust anchors ends.
func (i *Issuer) AnchorsNotAfter() time.Time {
	var end time.Time
	for _, c := range i.Anchors {
		if end.IsZero() || c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	return end
}

// Equal says whether two issuers sign and verify alike: the same chain, and
// the same set of anchors in whatever order.
func (i *Issuer) Equal(o *Issuer) bool {
	same := func(a, b *x509.Certificate) bool { return a.Equal(b) }
	if !slices.EqualFunc(i.Chain, o.Chain, same) || len(i.Anchors) != len(o.Anchors) {
		return false
	}
	for _, a := range i.Anchors {
		if !slices.ContainsFunc(o.Anchors, a.Equal) {
			return false
		}
	}
	return true
}

// Validity is for how long certificates are made.
type Validity struct {
	Lifetime time.Duration // 0 means 24h
	Skew     time.Duration // allowed clock difference, in both directions; 0 means 10s
}

// Defaults of Linkerd's identity service.
const (
	DefaultLifetime = 24 * time.Hour
	DefaultSkew     = 10 * time.Second
)

// Window is the period of a certificate made now, before it is clamped.
func (v Validity) Window(now time.Time) (from, to time.Time) {
	if v.Lifetime == 0 {
		v.Lifetime = DefaultLifetime
	}
	if v.Skew == 0 {
		v.Skew = DefaultSkew
	}
	return now.Add(-v.Skew), now.Add(v.Lifetime + v.Skew)
}

// Certificate is what a proxy gets.
type Certificate struct {
	Leaf *x509.Certificate
	// Between is the DER of every certificate of the chain but the leaf: the
	// issuer first. Trust anchors are not appended.
	Between [][]byte
}

// ErrKey means that a request's public key is not of the one kind that the
// mesh's proxies use.
var ErrKey = errors.New("public key is not ECDSA P-256")

// Order is what a leaf is made of.
type Order struct {
	// Request is one that CheckRequest accepted. Only its key, DNS name and
	// common name are taken. Extensions are not: one of them could say that the
	// leaf is an authority.
	Request *x509.CertificateRequest
	// URI is the account's SPIFFE ID, nil for none. It comes after the DNS name,
	// since proxies call a client by the first of its names.
	URI      *url.URL
	Validity Validity
	Now      time.Time
	Serial   *big.Int
}

// Sign makes a leaf certificate.
func Sign(o Order, by *Issuer) (*Certificate, error) {
	key, ok := o.Request.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, ErrKey
	}
	from, to := o.Validity.Window(o.Now)
	if end := by.NotAfter(); end.Before(to) {
		to = end
	}
	template := &x509.Certificate{
		SerialNumber:          o.Serial,
		Subject:               pkix.Name{CommonName: o.Request.Subject.CommonName},
		DNSNames:              o.Request.DNSNames,
		NotBefore:             from,
		NotAfter:              to,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	if o.URI != nil {
		template.URIs = []*url.URL{o.URI}
	}
	// The random source is the one thing that does not come in: a signature
	// without good randomness gives the key away.
	der, err := x509.CreateCertificate(rand.Reader, template, by.Chain[0], key, by.Key)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading back: %w", err)
	}
	out := &Certificate{Leaf: leaf, Between: make([][]byte, 0, len(by.Chain))}
	for _, c := range by.Chain {
		out.Between = append(out.Between, c.Raw)
	}
	return out, nil
}

// Serial draws a random positive serial number of 128 bits. Linkerd counts
// from 1 at each load of an issuer, so its serials repeat; ours do not.
func Serial() (*big.Int, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("drawing a serial: %w", err)
	}
	n := new(big.Int).SetBytes(b[:])
	if n.Sign() == 0 {
		n.SetInt64(1) // RFC 5280 wants a positive number
	}
	return n, nil
}
