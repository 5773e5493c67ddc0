package issue

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Account is the parsed user name of a token: system:<kind>:<namespace>:<name>.
type Account struct {
	Kind, Namespace, Name string
}

// Domain is what every identity of one mesh ends in.
type Domain struct {
	ControllerNamespace string
	TrustDomain         string
}

// Check says whether identities of this domain can be DNS names.
func (d Domain) Check() error {
	if !label(d.ControllerNamespace) {
		return fmt.Errorf("controller namespace %q: not a DNS label", d.ControllerNamespace)
	}
	if len(d.TrustDomain) == 0 || len(d.TrustDomain) > 253 {
		return fmt.Errorf("trust domain %q: not a DNS name", d.TrustDomain)
	}
	for part := range strings.SplitSeq(d.TrustDomain, ".") {
		if !label(part) {
			return fmt.Errorf("trust domain %q: not a DNS name", d.TrustDomain)
		}
	}
	return nil
}

// ParseAccount reads the user name a token stands for. Each part must be a DNS
// label, so a service account with a dot in its name has no identity; that is
// Linkerd's rule, and a dot would make two accounts share one name.
func ParseAccount(user string) (Account, error) {
	parts := strings.Split(user, ":")
	if len(parts) != 4 || parts[0] != "system" {
		return Account{}, errors.New("user name is not of the form system:TYPE:NS:NAME")
	}
	for _, part := range parts[1:] {
		if !label(part) {
			return Account{}, errors.New("part of the user name is not a DNS label")
		}
	}
	return Account{Kind: parts[1], Namespace: parts[2], Name: parts[3]}, nil
}

// Identity is the name that an account's certificate carries. The kind comes
// from the user name, not from us: serviceaccount for all of today's tokens.
func (d Domain) Identity(a Account) string {
	return a.Name + "." + a.Namespace + "." + a.Kind + ".identity." + d.ControllerNamespace + "." + d.TrustDomain
}

// SPIFFE is the account's name as other meshes write it, nil for a kind of
// account that SPIFFE's Kubernetes names don't know.
func (d Domain) SPIFFE(a Account) *url.URL {
	if a.Kind != "serviceaccount" {
		return nil
	}
	return &url.URL{Scheme: "spiffe", Host: d.TrustDomain, Path: "/ns/" + a.Namespace + "/sa/" + a.Name}
}

// label reports whether s is a DNS-1123 label.
func label(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
