// Package pki makes and reads certificates. Set is the throw-away certificates
// and workload tokens of the demo, for one run on one machine; Authority is an
// anchor or issuer of a cluster's mesh. Keys are written to files and Secrets,
// and never shown.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Set is where the files of one run are.
type Set struct {
	// Anchors is the PEM text of the trust anchors; AnchorsFile holds the same.
	Anchors     string
	AnchorsFile string
	// IssuerDir holds tls.crt and tls.key of the identity issuer.
	IssuerDir string
	// WebhookCert and WebhookKey serve 127.0.0.1 and localhost.
	WebhookCert, WebhookKey string
	// KeysFile is the JWKS that verifies workload tokens.
	KeysFile string

	token *ecdsa.PrivateKey
}

// lifetime of everything that is made.
const lifetime = 7 * 24 * time.Hour

// New makes an anchor, an issuer, a webhook certificate and a token key, and
// writes what processes read into dir, keys with mode 0600.
func New(dir, trustDomain, namespace string) (*Set, error) {
	if err := os.MkdirAll(filepath.Join(dir, "issuer"), 0o700); err != nil {
		return nil, fmt.Errorf("making certificates: %w", err)
	}
	now := time.Now().Add(-time.Minute)
	root, rootKey, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "root." + trustDomain}, NotBefore: now, NotAfter: now.Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil, nil)
	if err != nil {
		return nil, err
	}
	issuer, issuerKey, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "identity." + namespace + "." + trustDomain}, NotBefore: now, NotAfter: now.Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLen: 0, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, root, rootKey)
	if err != nil {
		return nil, err
	}
	hook, hookKey, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "localhost"}, NotBefore: now, NotAfter: now.Add(lifetime),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, root, rootKey)
	if err != nil {
		return nil, err
	}
	token, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a token key: %w", err)
	}
	s := &Set{
		Anchors: certPEM(root), AnchorsFile: filepath.Join(dir, "ca-bundle.crt"), IssuerDir: filepath.Join(dir, "issuer"),
		WebhookCert: filepath.Join(dir, "webhook.crt"), WebhookKey: filepath.Join(dir, "webhook.key"),
		KeysFile: filepath.Join(dir, "token-keys.json"), token: token,
	}
	files := map[string]string{
		s.AnchorsFile:                         s.Anchors,
		filepath.Join(s.IssuerDir, "tls.crt"): certPEM(issuer),
		s.WebhookCert:                         certPEM(hook),
	}
	for path, key := range map[string]*ecdsa.PrivateKey{filepath.Join(s.IssuerDir, "tls.key"): issuerKey, s.WebhookKey: hookKey} {
		if files[path], err = keyPEM(key); err != nil {
			return nil, err
		}
	}
	if files[s.KeysFile], err = jwks(token); err != nil {
		return nil, err
	}
	for path, body := range files {
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			return nil, fmt.Errorf("writing %s: %w", path, err)
		}
	}
	return s, nil
}

// sign makes a P-256 key and a certificate for it; with no parent it signs itself.
func sign(template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, fmt.Errorf("making a serial: %w", err)
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, nil, fmt.Errorf("signing %s: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("reading back %s: %w", template.Subject.CommonName, err)
	}
	return cert, key, nil
}

func certPEM(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

func keyPEM(key *ecdsa.PrivateKey) (string, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", fmt.Errorf("encoding a key: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), nil
}

const keyID = "demo"

// jwks writes the public half as a JSON Web Key Set (RFC 7517).
func jwks(key *ecdsa.PrivateKey) (string, error) {
	pub, err := key.PublicKey.ECDH()
	if err != nil {
		return "", fmt.Errorf("encoding the token key: %w", err)
	}
	point := pub.Bytes() // 0x04, then X and Y of 32 bytes each
	body, err := json.MarshalIndent(map[string]any{"keys": []any{map[string]string{
		"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": keyID,
		"x": base64.RawURLEncoding.EncodeToString(point[1:33]),
		"y": base64.RawURLEncoding.EncodeToString(point[33:]),
	}}}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding the token key: %w", err)
	}
	return string(body), nil
}

// Token makes the token that a kubelet would project into a pod of the
// service account, for the audience of Linkerd's identity service.
func (s *Set) Token(namespace, serviceAccount string) (string, error) {
	now := time.Now()
	head, err := json.Marshal(map[string]string{"alg": "ES256", "typ": "JWT", "kid": keyID})
	if err != nil {
		return "", fmt.Errorf("making a token: %w", err)
	}
	claims, err := json.Marshal(map[string]any{
		"iss": "weft-demo", "sub": "system:serviceaccount:" + namespace + ":" + serviceAccount, "aud": []string{"identity.l5d.io"},
		"iat": now.Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(lifetime).Unix(),
	})
	if err != nil {
		return "", fmt.Errorf("making a token: %w", err)
	}
	text := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	r, v, err := ecdsa.Sign(rand.Reader, s.token, sum[:])
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	var sig [64]byte // RFC 7518 section 3.4: R and S, 32 bytes each
	r.FillBytes(sig[:32])
	v.FillBytes(sig[32:])
	return text + "." + base64.RawURLEncoding.EncodeToString(sig[:]), nil
}
