package identity

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	keyFile = "key.p8"
	csrFile = "csr.der"
)

// ErrDocuments is of what the identity is made of: key, signing request or token are
// not there, or empty. The environment names files that it should not; a file that
// is there and makes no sense is something else.
var ErrDocuments = errors.New("the files of the identity cannot be read")

// nonEmpty reads a file that must have something in it.
func nonEmpty(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil && len(bytes.TrimSpace(b)) == 0 {
		err = fmt.Errorf("%s is empty", path)
	}
	return b, err
}

// loadKey reads the key and the signing request that Linkerd's proxy-identity
// wrapper writes. If neither file exists the proxy makes both, so no wrapper is
// needed. A key without a request is what a proxy leaves that was killed while
// it made them (the directory outlives the container): the request is made anew.
// A request without its key is something else, and it says so.
func loadKey(dir, name string) (*ecdsa.PrivateKey, []byte, error) {
	keyDER, keyErr := nonEmpty(filepath.Join(dir, keyFile))
	csr, csrErr := nonEmpty(filepath.Join(dir, csrFile))
	if errors.Is(keyErr, fs.ErrNotExist) && errors.Is(csrErr, fs.ErrNotExist) {
		return makeKey(dir, name)
	}
	noRequest := errors.Is(csrErr, fs.ErrNotExist)
	if noRequest {
		csrErr = nil
	}
	if err := errors.Join(keyErr, csrErr); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrDocuments, err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(keyDER)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", keyFile, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, nil, fmt.Errorf("reading %s: want an ECDSA P-256 key", keyFile)
	}
	if noRequest {
		csr, err = makeRequest(dir, name, key)
		return key, csr, err
	}
	if err := checkCSR(csr, key); err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", csrFile, err)
	}
	return key, csr, nil
}

func checkCSR(csr []byte, key *ecdsa.PrivateKey) error {
	req, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return err
	}
	if !key.PublicKey.Equal(req.PublicKey) {
		return errors.New("made for another key")
	}
	return nil
}

func makeKey(dir, name string) (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making the key: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("making the key: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("making the identity directory: %w", err)
	}
	if err := writeWhole(filepath.Join(dir, keyFile), keyDER); err != nil {
		return nil, nil, fmt.Errorf("writing the key: %w", err)
	}
	csr, err := makeRequest(dir, name, key)
	return key, csr, err
}

// makeRequest makes what proxy-identity makes: common name and the one DNS name
// are the identity.
func makeRequest(dir, name string, key *ecdsa.PrivateKey) ([]byte, error) {
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:            pkix.Name{CommonName: name},
		DNSNames:           []string{name},
		SignatureAlgorithm: x509.ECDSAWithSHA256,
	}, key)
	if err != nil {
		return nil, fmt.Errorf("making the signing request: %w", err)
	}
	if err := writeWhole(filepath.Join(dir, csrFile), csr); err != nil {
		return nil, fmt.Errorf("writing the signing request: %w", err)
	}
	return csr, nil
}

// writeWhole leaves the file whole or not there, whenever the process is killed.
func writeWhole(path string, content []byte) error {
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
