package identity

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

var oidSubjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

// SubjectAltName's context tags (RFC 5280 §4.2.1.6).
const (
	tagDNS = 2
	tagURI = 6
)

// names lists the identities in a certificate in the order they stand there,
// which x509.Certificate does not keep: DNS names without a trailing dot, lower
// case, and URIs as they are. Other kinds, and the common name, never count.
func names(cert *x509.Certificate) []string {
	var out []string
	for _, ext := range cert.Extensions {
		if !ext.Id.Equal(oidSubjectAltName) {
			continue
		}
		var seq asn1.RawValue
		if rest, err := asn1.Unmarshal(ext.Value, &seq); err != nil || len(rest) > 0 || seq.Tag != asn1.TagSequence {
			return nil
		}
		for rest := seq.Bytes; len(rest) > 0; {
			var v asn1.RawValue
			var err error
			if rest, err = asn1.Unmarshal(rest, &v); err != nil {
				return nil
			}
			if v.Class != asn1.ClassContextSpecific {
				continue
			}
			s := string(v.Bytes)
			switch {
			case v.Tag == tagDNS && isDNS(s):
				out = append(out, strings.ToLower(s))
			case v.Tag == tagURI && isURI(s):
				out = append(out, s)
			}
		}
	}
	return out
}

func isDNS(s string) bool {
	if s == "" || len(s) > 253 || strings.HasSuffix(s, ".") {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for i := range len(label) {
			c := label[i]
			letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
			if !letter && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

func isURI(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme != "" && u.Host != ""
}

// PeerIdentity is the first identity in the peer's leaf certificate, or "" if it
// sent none. The chain has been verified by the handshake.
func PeerIdentity(cs tls.ConnectionState) string {
	if len(cs.PeerCertificates) == 0 {
		return ""
	}
	if ids := names(cs.PeerCertificates[0]); len(ids) > 0 {
		return ids[0]
	}
	return ""
}

// matches is the one rule by which a certificate proves an identity: any of its
// names, byte for byte. There are no wildcards.
func matches(cert *x509.Certificate, id string) bool {
	return slices.Contains(names(cert), id)
}

// ParseAnchors reads PEM text. A block that is no certificate is reported and
// the good ones are kept; none at all is an error.
func ParseAnchors(text string) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	var bad []error
	for rest := []byte(text); len(rest) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			bad = append(bad, fmt.Errorf("a PEM block of type %q is no trust anchor", block.Type))
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			bad = append(bad, fmt.Errorf("reading a trust anchor: %w", err))
			continue
		}
		if !slices.ContainsFunc(out, cert.Equal) {
			out = append(out, cert)
		}
	}
	if len(out) == 0 {
		return nil, errors.Join(append(bad, errors.New("no certificate in the trust anchors"))...)
	}
	return out, errors.Join(bad...)
}

func pool(certs []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certs {
		p.AddCert(c)
	}
	return p
}
