package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
)

// Write puts the pair into dir as <name>.crt and <name>.key.
func (p Pair) Write(dir, name string) error {
	if err := write(filepath.Join(dir, name+".crt"), p.Cert); err != nil {
		return err
	}
	return write(filepath.Join(dir, name+".key"), p.Key)
}

func write(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("making a directory for certificates: %w", err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return fmt.Errorf("writing a certificate: %w", err)
	}
	return nil
}

// WriteSigningKey makes the key of service accounts: <name>.key, and <name>.pub
// for those who only verify.
func WriteSigningKey(dir, name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making a signing key: %w", err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding a signing key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encoding a signing key: %w", err)
	}
	if err := write(filepath.Join(dir, name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})); err != nil {
		return err
	}
	return write(filepath.Join(dir, name+".pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
}

// WriteKubeconfig makes the file by which someone with the pair talks to the API
// server at the URL.
func WriteKubeconfig(file, server, cluster string, ca []byte, p Pair) error {
	b64 := base64.StdEncoding.EncodeToString
	return write(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: %[1]s
  cluster:
    server: %[2]s
    certificate-authority-data: %[3]s
users:
- name: %[1]s
  user:
    client-certificate-data: %[4]s
    client-key-data: %[5]s
contexts:
- name: %[1]s
  context: {cluster: %[1]s, user: %[1]s}
current-context: %[1]s
`, cluster, server, b64(ca), b64(p.Cert), b64(p.Key)))
}
