package identity

import (
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
)

// A refusal is why a peer's certificate proves nothing. Its rule is the label of
// weft_identity_peers_refused_total.
type refusal struct {
	rule string
	err  error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// The rules.
const (
	ruleNone      = "no_certificate"
	ruleExpired   = "expired"
	ruleUntrusted = "untrusted"
	ruleUsage     = "usage"
	ruleKey       = "weak_key"
	ruleName      = "name"
)

// minRSA and maxRSA bound RSA keys, in bits (spec/proxy.md §12.1).
const minRSA, maxRSA = 2048, 8192

// verify checks that a chain leads to a trust anchor now, for the given use.
func (l *Local) verify(chain []*x509.Certificate, anchors *x509.CertPool, use x509.ExtKeyUsage) error {
	for _, c := range chain {
		if key, ok := c.PublicKey.(*rsa.PublicKey); ok && (key.N.BitLen() < minRSA || key.N.BitLen() > maxRSA) {
			return &refusal{ruleKey, fmt.Errorf("verifying the peer's certificate: an RSA key of %d bits", key.N.BitLen())}
		}
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots:         anchors,
		Intermediates: pool(chain[1:]),
		CurrentTime:   l.now(),
		KeyUsages:     []x509.ExtKeyUsage{use},
	})
	if err != nil {
		return &refusal{ruleOf(err), fmt.Errorf("verifying the peer's certificate: %w", err)}
	}
	return nil
}

func ruleOf(err error) string {
	invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
	switch {
	case ok && invalid.Reason == x509.Expired:
		return ruleExpired
	case ok && invalid.Reason == x509.IncompatibleUsage:
		return ruleUsage
	}
	return ruleUntrusted
}

// refused counts a peer that is turned away, and passes the reason on.
func (l *Local) refused(role string, err error) error {
	if r, ok := errors.AsType[*refusal](err); ok {
		l.metrics.refused.WithLabelValues(role, r.rule).Inc()
	}
	return err
}
