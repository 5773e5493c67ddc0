// Package rotate replaces the certificates that the mesh's identities hang on,
// without a moment in which two proxies don't trust each other, and shows those
// that proxies have.
//
// A rotation has no memory of its own: where it stands is read from the cluster
// (Facts), Next says from that alone what comes next, and each step may be done
// twice. So a command that was killed is simply run again, by anybody.
package rotate

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/weftmesh/weft/tools/weft/internal/pki"
)

// Act is what a step does.
type Act int

const (
	// Idle means that nothing is under way.
	Idle Act = iota
	// Blocked means that somebody else must act first; Why says who.
	Blocked
	// AddAnchor puts the new anchor into the bundle, beside the old ones.
	AddAnchor
	// SyncConfig tells linkerd-config what the bundle is.
	SyncConfig
	// RestartProxies means that pods must be started anew, to trust the new anchor.
	RestartProxies
	// ReplaceIssuer puts the staged issuer in place.
	ReplaceIssuer
	// AwaitNodes waits, since the kubelets may not have brought a change to all replicas yet.
	AwaitNodes
	// AwaitProxies waits, since pods still show, or may show, a chain under an old anchor.
	AwaitProxies
	// DropAnchors takes the old anchors out of the bundle.
	DropAnchors
	// Done means that the rotation is complete.
	Done
)

// String names the act in a word or two.
func (a Act) String() string {
	return [...]string{
		"idle", "blocked", "add the new anchor", "sync linkerd-config", "restart pods", "replace the issuer",
		"wait for the nodes", "wait for the proxies", "drop the old anchors", "done",
	}[a]
}

// Waits says whether the step is something to wait for rather than to do.
func (a Act) Waits() bool {
	return a == RestartProxies || a == AwaitNodes || a == AwaitProxies || a == Blocked
}

// Step is what comes next.
type Step struct {
	Act  Act
	Why  string
	Pods []Waiting     // for RestartProxies, AwaitProxies, and Done (pods that still trust what was dropped)
	For  time.Duration // for AwaitNodes
}

// Waiting is a proxy that a step waits for, and why.
type Waiting struct {
	Proxy
	Why string
}

// settle is how long kubelets may need to bring a changed Secret to a pod: a
// sync period and a cache's life of a minute each (kubelet's defaults), and some.
const settle = 3 * time.Minute

// injectLag is how long after a change of the bundle pods may still be injected
// with the former one: the injector gets it through its kubelet, too.
const injectLag = 90 * time.Second

// restart is the step for pods that don't trust the new anchor. Restarted too
// early, they would have to be restarted again.
func (f *Facts) restart(distrust []Waiting, why string) Step {
	if left := injectLag - f.Now.Sub(f.AddedAt); !f.AddedAt.IsZero() && left > 0 && left <= injectLag {
		return Step{Act: AwaitNodes, Why: "pods may still be injected with the former bundle", For: left}
	}
	return Step{Act: RestartProxies, Why: why, Pods: distrust}
}

// Next says what a rotation to the anchor f.New needs next.
func Next(f *Facts) Step {
	if f.New == "" {
		return Step{Act: Idle, Why: "no rotation of the trust anchor is under way"}
	}
	anchor := f.anchor(f.New)
	switch {
	case f.ExternalCA:
		return Step{Act: Blocked, Why: "ConfigMap linkerd-identity-trust-roots is written by somebody else (identity.externalCA): " +
			"add and drop anchors there"}
	case anchor == nil:
		return Step{Act: AddAnchor, Why: "the bundle does not have the new anchor"}
	case !sameSet(f.Config, f.Bundle):
		return Step{Act: SyncConfig, Why: "linkerd-config, from which pods are injected, has other anchors than the bundle"}
	}
	distrust := f.waiting(func(p Proxy) string {
		if f.trusts(p, anchor) {
			return ""
		}
		return "does not trust the new anchor: it was started before"
	})
	if !under(f.Issuer, anchor) {
		return f.beforeIssuer(anchor, distrust)
	}
	old := f.stillThere()
	if len(distrust) > 0 {
		return f.restart(distrust, "these pods would trust nobody once the old anchor is gone")
	}
	if len(old) == 0 {
		return Step{Act: Done, Why: "the bundle holds no old anchor, and the issuer is under the new one", Pods: f.waiting(f.stale)}
	}
	if left := settle - f.Now.Sub(f.IssuerChanged); !f.IssuerChanged.IsZero() && left > 0 && left <= settle {
		return Step{Act: AwaitNodes, Why: "replicas of the identity service may still sign with the former issuer", For: left}
	}
	if late := f.waiting(func(p Proxy) string { return f.presents(p, anchor) }); len(late) > 0 {
		return Step{Act: AwaitProxies, Why: "dropping the old anchor would cut these pods off", Pods: late}
	}
	return Step{Act: DropAnchors, Why: "every live proxy shows a chain under the new anchor"}
}

// beforeIssuer is the part of the way up to the new issuer.
func (f *Facts) beforeIssuer(anchor *x509.Certificate, distrust []Waiting) Step {
	// An issuer that is of no use to anybody needs no care: nobody gets a
	// certificate, restarted pods least of all, before it is replaced.
	useless := pki.Leads(f.Issuer, f.Bundle, f.Now) != nil
	switch {
	case len(distrust) > 0 && !useless:
		return f.restart(distrust, "these pods would not trust certificates of the new issuer")
	case f.ExternalIssuer:
		return Step{Act: Blocked, Why: "Secret linkerd-identity-issuer is written by somebody else (scheme kubernetes.io/tls): " +
			"have it signed by the new anchor now; every pod trusts that"}
	case len(f.Staged) == 0:
		return Step{Act: Blocked, Why: "no issuer under the new anchor is at hand: give one with " +
			"--identity-issuer-certificate-file and --identity-issuer-key-file, or --trust-anchor-key-file to sign one"}
	case !under(f.Staged, anchor):
		return Step{Act: Blocked, Why: "the issuer in Secret " + stagedSecret + " is not under the new anchor: give another"}
	case useless:
		return Step{Act: ReplaceIssuer, Why: "the present issuer is of no use: it has expired or leads to no anchor"}
	}
	return Step{Act: ReplaceIssuer, Why: "every live proxy trusts the new anchor"}
}

// stillThere are the old anchors that the bundle still has.
func (f *Facts) stillThere() []*x509.Certificate {
	var out []*x509.Certificate
	for _, c := range f.Bundle {
		if print := pki.Print(c); print != f.New && slices.Contains(f.Old, print) {
			out = append(out, c)
		}
	}
	return out
}

// presents is why a proxy's certificate does not stand under the new anchor, or
// empty. A proxy that says nothing might have an old one.
func (f *Facts) presents(p Proxy, anchor *x509.Certificate) string {
	switch {
	case !p.Running:
		return "" // it will ask for a certificate when it runs
	case p.Silent != "":
		return "its certificate could not be seen: " + p.Silent
	case len(p.Chain) == 0:
		return "it shows no certificate"
	case !under(p.Chain, anchor):
		return fmt.Sprintf("shows a chain under an old anchor, until it renews (its certificate ends %s)", p.Chain[0].NotAfter.UTC().Format(time.RFC3339))
	case p.Chain[0].NotAfter.Before(f.Now):
		return "its certificate has expired"
	}
	return ""
}

// waiting lists the proxies for which why is not empty.
func (f *Facts) waiting(why func(Proxy) string) []Waiting {
	var out []Waiting
	for _, p := range byName(f.Proxies) {
		if text := why(p); text != "" {
			out = append(out, Waiting{p, text})
		}
	}
	return out
}

// MayReplaceIssuer says whether an issuer under the present anchors can take the
// place of the present one. The second answer lists who would be cut off.
func MayReplaceIssuer(f *Facts, chain []*x509.Certificate) (string, []Waiting) {
	if f.ExternalIssuer {
		return "Secret linkerd-identity-issuer is written by somebody else (scheme kubernetes.io/tls), who would undo it", nil
	}
	if f.New != "" {
		return "a rotation of the trust anchor is under way", nil
	}
	if err := pki.Leads(chain, f.Bundle, f.Now); err != nil {
		return "the new issuer leads to none of the mesh's trust anchors: " + err.Error(), nil
	}
	// An issuer that nobody can use now cuts nobody off that has not been.
	if pki.Leads(f.Issuer, f.Bundle, f.Now) != nil {
		return "", nil
	}
	roots := f.roots(chain)
	late := f.waiting(func(p Proxy) string {
		if slices.ContainsFunc(roots, func(a *x509.Certificate) bool { return f.trusts(p, a) }) {
			return ""
		}
		return "does not trust the anchor of the new issuer"
	})
	if len(late) > 0 {
		return "some pods would not trust its certificates", late
	}
	return "", nil
}
