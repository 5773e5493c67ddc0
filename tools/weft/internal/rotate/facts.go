package rotate

import (
	"crypto/x509"
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/tools/weft/internal/pki"
)

// Facts is what the cluster looks like at one moment. Everything that a
// rotation decides is decided from them.
type Facts struct {
	Now       time.Time
	Namespace string

	// Bundle is ConfigMap linkerd-identity-trust-roots, Damaged how many of its
	// certificates cannot be read, Config what linkerd-config says it is.
	Bundle  []*x509.Certificate
	Damaged int
	Config  []*x509.Certificate
	// Added is the fingerprint of the anchor that was last added, at AddedAt;
	// DroppedAt is when anchors were last dropped. Empty or zero if never by us.
	Added              string
	AddedAt, DroppedAt time.Time
	// ExternalCA: somebody else writes the bundle (trust-manager, perhaps).
	ExternalCA bool

	// Issuer is the chain in Secret linkerd-identity-issuer.
	Issuer []*x509.Certificate
	// IssuerChanged is when we last wrote it; zero if never.
	IssuerChanged time.Time
	// ExternalIssuer: somebody else writes the Secret (cert-manager, perhaps).
	ExternalIssuer bool

	// New and Old name the anchors of a rotation that is under way, by
	// fingerprint; New is empty if none is. Staged is the issuer that waits for it.
	New    string
	Old    []string
	Staged []*x509.Certificate

	Proxies []Proxy
}

// Proxy is one live proxy.
type Proxy struct {
	Namespace, Pod string
	// Owner is what can be restarted, as kind/name; empty for a bare pod.
	Owner string
	// Identity is the name in its certificate.
	Identity string
	// AdminPort is where it shows its certificate.
	AdminPort int

	// Trusts is what the pod was started with. FromMap says that it read the
	// ConfigMap when its container started, at Started; Trusts is nil then.
	Trusts  []*x509.Certificate
	FromMap bool
	Started time.Time
	// Running: its container runs. One that does not has nothing to show yet.
	Running bool

	// Chain is what it showed, or Silent why it showed nothing.
	Chain  []*x509.Certificate
	Silent string
}

// Name is the pod's name for people.
func (p Proxy) Name() string { return p.Namespace + "/" + p.Pod }

// mapSlack is how long after a change of a ConfigMap a kubelet may still give
// the former content to a container that starts.
const mapSlack = 10 * time.Second

// since says whether a proxy that reads the ConfigMap read it, or will read it,
// after a change of it: each start of its container reads it anew.
func (f *Facts) since(p Proxy, change time.Time) bool {
	switch {
	case change.IsZero():
		return true
	case !p.Running:
		return f.Now.After(change.Add(injectLag))
	}
	return p.Started.After(change.Add(mapSlack))
}

// trusts says whether a proxy takes chains that lead to the anchor.
func (f *Facts) trusts(p Proxy, anchor *x509.Certificate) bool {
	if !p.FromMap {
		return slices.ContainsFunc(p.Trusts, anchor.Equal)
	}
	return slices.ContainsFunc(f.Bundle, anchor.Equal) && (pki.Print(anchor) != f.Added || f.since(p, f.AddedAt))
}

// stale is why a proxy trusts more than the bundle says, or empty.
func (f *Facts) stale(p Proxy) string {
	more := slices.ContainsFunc(p.Trusts, func(c *x509.Certificate) bool { return !slices.ContainsFunc(f.Bundle, c.Equal) })
	if !p.FromMap && more || p.FromMap && !f.since(p, f.DroppedAt) {
		return "still trusts what was dropped, until it is restarted"
	}
	return ""
}

// anchor finds one of the bundle's by its fingerprint.
func (f *Facts) anchor(print string) *x509.Certificate {
	for _, c := range f.Bundle {
		if pki.Print(c) == print {
			return c
		}
	}
	return nil
}

// roots are the anchors of the bundle that a chain leads to by signature. Time
// does not matter here: an expired issuer stood under its anchor, too.
func (f *Facts) roots(chain []*x509.Certificate) []*x509.Certificate {
	var out []*x509.Certificate
	for _, a := range f.Bundle {
		if under(chain, a) {
			out = append(out, a)
		}
	}
	return out
}

// under says whether a chain leads to the anchor, whatever the time is.
func under(chain []*x509.Certificate, anchor *x509.Certificate) bool {
	if len(chain) == 0 {
		return false
	}
	// A moment at which all of the chain can be valid, if there is one.
	at := chain[0].NotBefore
	for _, c := range append(slices.Clone(chain), anchor) {
		if c.NotBefore.After(at) {
			at = c.NotBefore
		}
	}
	return pki.Leads(chain, []*x509.Certificate{anchor}, at.Add(time.Second)) == nil
}

// sameSet says whether two bundles hold the same certificates.
func sameSet(a, b []*x509.Certificate) bool {
	has := func(in, all []*x509.Certificate) bool {
		return !slices.ContainsFunc(in, func(c *x509.Certificate) bool { return !slices.ContainsFunc(all, c.Equal) })
	}
	return has(a, b) && has(b, a)
}

// byName sorts proxies as people look for them.
func byName(all []Proxy) []Proxy {
	out := slices.Clone(all)
	slices.SortFunc(out, func(a, b Proxy) int { return strings.Compare(a.Name(), b.Name()) })
	return out
}
