package install

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
)

// credentials makes sure that identity could work with the issuer and anchors
// in rendered manifests: it would refuse them, too, but only in the cluster.
// An issuer that is not valid at now is refused only where that is asked for:
// an upgrade of what has expired must be possible.
func credentials(docs []manifest.Document, now time.Time, strict bool) error {
	wrong := func(err error) error {
		return &say.Problem{
			What: "identity could not work with these certificates", Why: err.Error(),
			Next: "give an issuer (--identity-issuer-certificate-file, --identity-issuer-key-file) that the trust anchors (--identity-trust-anchors-file) signed; step, cfssl or openssl make them", Err: err,
		}
	}
	for _, d := range docs {
		if d.Object["kind"] != "Secret" || name(d) != issuerName {
			continue
		}
		pair, err := tls.X509KeyPair([]byte(datum(d.Object, "crt.pem")), []byte(datum(d.Object, "key.pem")))
		if err != nil {
			return wrong(fmt.Errorf("certificate and key of the issuer: %w", err))
		}
		chain := certificates(datum(d.Object, "crt.pem"))
		if err := fit(chain[0], now, strict); err != nil {
			return wrong(err)
		}
		if _, ok := pair.PrivateKey.(*ecdsa.PrivateKey); !ok {
			return wrong(errors.New("the issuer's key is not ECDSA"))
		}
		for _, roots := range docs {
			if roots.Object["kind"] != "ConfigMap" || name(roots) != trustRootsName {
				continue
			}
			if err := signedBy(chain, certificates(datum(roots.Object, bundleKey))); err != nil {
				return wrong(fmt.Errorf("no trust anchor signed the issuer: %w", err))
			}
		}
	}
	return nil
}

// fit says whether a certificate can issue others.
func fit(issuer *x509.Certificate, now time.Time, strict bool) error {
	key, ok := issuer.PublicKey.(*ecdsa.PublicKey)
	switch {
	case !ok || key.Curve != elliptic.P256():
		return errors.New("the issuer's key is not ECDSA P-256, which proxies expect")
	case !issuer.IsCA:
		return errors.New("the issuer is no authority: its basic constraints lack CA")
	case strict && now.After(issuer.NotAfter):
		return fmt.Errorf("the issuer has expired on %s", issuer.NotAfter.Format(time.RFC3339))
	case strict && now.Before(issuer.NotBefore):
		return fmt.Errorf("the issuer is valid only from %s on", issuer.NotBefore.Format(time.RFC3339))
	}
	return nil
}
