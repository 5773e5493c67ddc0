package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
)

// Bounds of a key file, so that a wrong file cannot hurt.
const (
	maxKeyFile = 1 << 20 // bytes
	maxKeys    = 64
)

// Key is one public key that may have signed a token.
type Key struct {
	ID     string // kid; empty for keys from PEM
	Method string // ES256, ES384, ES512, RS256 or EdDSA
	Public crypto.PublicKey
}

// ParseKeys reads a JWK set (RFC 7517) or public keys in PEM. Keys of kinds or
// uses that we don't know are left out, as RFC 7517 §5 wants; a file without a
// single usable key is an error.
func ParseKeys(b []byte) ([]Key, error) {
	if len(b) > maxKeyFile {
		return nil, fmt.Errorf("key file is larger than %d bytes", maxKeyFile)
	}
	keys, err := parsePEM(b)
	if err == nil && len(keys) == 0 {
		keys, err = parseJWKS(b)
	}
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, errors.New("no usable ES256, ES384, ES512, RS256 or EdDSA key")
	}
	if len(keys) > maxKeys {
		return nil, fmt.Errorf("%d keys in the file, at most %d are read", len(keys), maxKeys)
	}
	return keys, nil
}

func parsePEM(b []byte) ([]Key, error) {
	var keys []Key
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "PUBLIC KEY" {
			return nil, fmt.Errorf("PEM block of type %q: only PUBLIC KEY belongs in a key file", block.Type)
		}
		pub, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parsing public key %d: %w", len(keys)+1, err)
		}
		key, err := usable(pub)
		if err != nil {
			return nil, fmt.Errorf("public key %d: %w", len(keys)+1, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// jwk holds the members of RFC 7518 §6 and RFC 8037 that we read.
type jwk struct {
	Kty string `json:"kty"`
	Use string `json:"use"`
	Kid string `json:"kid"`
	Alg string `json:"alg"`
	Crv string `json:"crv"`
	X   string `json:"x"`
	Y   string `json:"y"`
	N   string `json:"n"`
	E   string `json:"e"`
}

func parseJWKS(b []byte) ([]Key, error) {
	var set struct {
		Keys []jwk `json:"keys"`
	}
	if err := json.Unmarshal(b, &set); err != nil {
		return nil, errors.New("keys are neither PEM nor a JWK set")
	}
	var keys []Key
	for i, j := range set.Keys {
		key, ok, err := j.key()
		if err != nil {
			return nil, fmt.Errorf("key %d of the set: %w", i+1, err)
		}
		if ok {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// key is not ok for one of a kind or use that we don't know.
func (j jwk) key() (key Key, ok bool, err error) {
	if j.Use != "" && j.Use != "sig" {
		return Key{}, false, nil
	}
	pub, err := j.public()
	if err != nil || pub == nil {
		return Key{}, false, err
	}
	if key, err = usable(pub); err != nil {
		return Key{}, false, err
	}
	if j.Alg != "" && j.Alg != key.Method {
		return Key{}, false, nil // made for a method that we don't speak
	}
	key.ID = j.Kid
	return key, true, nil
}

// The curves that a Kubernetes API server signs tokens with, and the methods
// that go with them (RFC 7518 section 3.4).
var (
	curves    = map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}
	ecMethods = map[string]string{"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
)

// public is nil for a kind of key that we don't read.
func (j jwk) public() (crypto.PublicKey, error) {
	switch {
	case j.Kty == "EC":
		curve := curves[j.Crv]
		if curve == nil {
			return nil, nil
		}
		x, errX := number(j.X)
		y, errY := number(j.Y)
		if err := errors.Join(errX, errY); err != nil {
			return nil, err
		}
		size := (curve.Params().BitSize + 7) / 8
		if len(x) > size || len(y) > size {
			return nil, errors.New("coordinate is too long")
		}
		point := make([]byte, 1+2*size)
		point[0] = 4 // uncompressed
		copy(point[1+size-len(x):], x)
		copy(point[1+2*size-len(y):], y)
		return ecdsa.ParseUncompressedPublicKey(curve, point)
	case j.Kty == "OKP" && j.Crv == "Ed25519":
		x, err := number(j.X)
		if err != nil {
			return nil, err
		}
		if len(x) != ed25519.PublicKeySize {
			return nil, errors.New("key has a wrong length")
		}
		return ed25519.PublicKey(x), nil
	case j.Kty == "RSA":
		n, errN := number(j.N)
		e, errE := number(j.E)
		if err := errors.Join(errN, errE); err != nil {
			return nil, err
		}
		if len(e) > 4 || len(n) > 1024 {
			return nil, errors.New("number is too long")
		}
		exp := int(new(big.Int).SetBytes(e).Int64())
		return &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: exp}, nil
	}
	return nil, nil
}

func number(s string) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) == 0 {
		return nil, errors.New("number is not base64url")
	}
	return b, nil
}

func usable(pub crypto.PublicKey) (Key, error) {
	switch k := pub.(type) {
	case *ecdsa.PublicKey:
		method := ecMethods[k.Curve.Params().Name]
		if method == "" {
			return Key{}, errors.New("curve is not P-256, P-384 or P-521")
		}
		return Key{Method: method, Public: k}, nil
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < 2048 || bits > 8192 || k.E < 3 || k.E%2 == 0 {
			return Key{}, errors.New("RSA key is not of 2048 to 8192 bits with an odd exponent")
		}
		return Key{Method: "RS256", Public: k}, nil
	case ed25519.PublicKey:
		return Key{Method: "EdDSA", Public: k}, nil
	}
	return Key{}, errors.New("kind of key is not supported")
}
