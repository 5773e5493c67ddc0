// Package token says whom a proxy's token stands for.
//
// A token is a secret. No error, log line or metric made here holds any part
// of one; reasons are fixed sentences.
package token

import "errors"

// Audience is what a proxy's projected token must be made for.
const Audience = "identity.l5d.io"

var (
	// ErrInvalid says that the authenticator looked at the token and refused it.
	ErrInvalid = errors.New("token is not valid")
	// ErrUnauthenticated says that the authenticator found no user behind the token.
	ErrUnauthenticated = errors.New("token is not authenticated")
	// ErrUnreachable says that the authenticator could not be asked: nothing is
	// known of the token.
	ErrUnreachable = errors.New("the API server cannot be asked")
)

// refused is an ErrInvalid with the authenticator's reason.
type refused struct{ reason string }

func (r refused) Error() string   { return "token is not valid: " + r.reason }
func (refused) Is(err error) bool { return err == ErrInvalid }
