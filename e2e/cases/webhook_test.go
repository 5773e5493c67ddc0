package cases

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// selfSigned makes a certificate and its key, PEM.
func selfSigned(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhook"}, NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// applyPatch applies a JSON patch (RFC 6902) of add operations, as the API
// server would; any other operation is an error.
func applyPatch(object json.RawMessage, patch []byte) (map[string]any, error) {
	var root any
	if err := json.Unmarshal(object, &root); err != nil {
		return nil, err
	}
	var ops []struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	if err := json.Unmarshal(patch, &ops); err != nil {
		return nil, err
	}
	for _, op := range ops {
		if op.Op != "add" || !strings.HasPrefix(op.Path, "/") {
			return nil, fmt.Errorf("%s %q is not an add", op.Op, op.Path)
		}
		next, err := addAt(root, strings.Split(op.Path[1:], "/"), op.Value)
		if err != nil {
			return nil, fmt.Errorf("adding %s: %w", op.Path, err)
		}
		root = next
	}
	out, ok := root.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the patch makes %T", root)
	}
	return out, nil
}

func addAt(in any, path []string, value any) (any, error) {
	if len(path) == 0 {
		return value, nil
	}
	token := strings.NewReplacer("~1", "/", "~0", "~").Replace(path[0])
	switch in := in.(type) {
	case map[string]any:
		if _, there := in[token]; !there && len(path) > 1 {
			return nil, fmt.Errorf("there is no %q", token)
		}
		next, err := addAt(in[token], path[1:], value)
		if err != nil {
			return nil, err
		}
		in[token] = next
		return in, nil
	case []any:
		n := len(in)
		if token != "-" {
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i > len(in) {
				return nil, fmt.Errorf("no index %q in a list of %d", token, len(in))
			}
			n = i
		}
		if len(path) == 1 {
			return slices.Insert(in, n, value), nil
		}
		if n == len(in) {
			return nil, fmt.Errorf("no index %q in a list of %d", token, len(in))
		}
		next, err := addAt(in[n], path[1:], value)
		if err != nil {
			return nil, err
		}
		in[n] = next
		return in, nil
	}
	return nil, fmt.Errorf("%T has no %q", in, token)
}
