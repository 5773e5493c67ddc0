package token

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Local authenticates tokens by a file of public keys, for a mesh without
// Kubernetes. The file is read for each token: it is small, tokens are rare
// (one per proxy and day), and so a new key needs no restart.
type Local struct {
	Path string
	Now  func() time.Time // nil means time.Now
}

// Review gives the user name that a token stands for.
func (l *Local) Review(_ context.Context, token []byte) (string, error) {
	b, err := readAtMost(l.Path, maxKeyFile)
	if err != nil {
		return "", err
	}
	keys, err := ParseKeys(b)
	if err != nil {
		return "", err
	}
	return Verify(token, keys, l.Now)
}

// Check says whether the key file can be used now.
func (l *Local) Check() error {
	b, err := readAtMost(l.Path, maxKeyFile)
	if err != nil {
		return err
	}
	_, err = ParseKeys(b)
	return err
}

func readAtMost(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, errors.New("reading the token key file: " + reason(err))
	}
	if info.Size() > limit {
		return nil, errors.New("reading the token key file: too large")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.New("reading the token key file: " + reason(err))
	}
	return b, nil
}

func reason(err error) string {
	if errors.Is(err, os.ErrNotExist) {
		return "it does not exist"
	}
	return err.Error()
}

// claims are what a local token must say: aud holds identity.l5d.io, exp lies
// ahead, sub is system:serviceaccount:NAMESPACE:NAME.
type claims struct {
	jwt.RegisteredClaims
}

// Verify checks a token in compact form against keys.
func Verify(token []byte, keys []Key, now func() time.Time) (string, error) {
	if now == nil {
		now = time.Now
	}
	parser := jwt.NewParser(
		jwt.WithValidMethods(methods),
		jwt.WithAudience(Audience),
		jwt.WithExpirationRequired(),
		jwt.WithTimeFunc(now),
	)
	var got claims
	if _, err := parser.ParseWithClaims(string(token), &got, among(keys)); err != nil {
		return "", refusal(err)
	}
	if got.Subject == "" {
		return "", ErrUnauthenticated
	}
	return got.Subject, nil
}

// methods are all that a token may be signed with.
var methods = []string{"ES256", "ES384", "ES512", "RS256", "EdDSA"}

// refusal is what the parser found, in our own words: its words may quote.
func refusal(err error) error {
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		return refused{"it is malformed"}
	case errors.Is(err, jwt.ErrTokenExpired):
		return refused{"it has expired"}
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return refused{"it is not valid yet"}
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return refused{"it is not for the audience " + Audience}
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return refused{"it is from another issuer"}
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return refused{"a required claim is missing"}
	case errors.Is(err, errClaims):
		return refused{"its claims do not belong together"}
	default:
		return refused{"no known key signed it"}
	}
}

// among looks a token's key up.
func among(keys []Key) jwt.Keyfunc {
	return func(t *jwt.Token) (any, error) {
		kid, _ := t.Header["kid"].(string)
		return candidates(keys, t.Method.Alg(), kid)
	}
}

// candidates are the keys that may have signed a token with this header. A
// key's method is fixed by its kind, so a token cannot choose a weaker one.
func candidates(keys []Key, method, kid string) (any, error) {
	var set jwt.VerificationKeySet
	for _, k := range keys {
		if k.Method == method && (kid == "" || k.ID == "" || k.ID == kid) {
			set.Keys = append(set.Keys, k.Public)
		}
	}
	if len(set.Keys) == 0 {
		return nil, errors.New("no such key")
	}
	return set, nil
}
