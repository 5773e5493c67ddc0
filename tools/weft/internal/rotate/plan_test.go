package rotate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/tools/weft/internal/pki"
)

var now = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)

const year = 365 * 24 * time.Hour

// ca is an anchor, an issuer under it, and the leaves that it signs.
type ca struct {
	t              testing.TB
	anchor, issuer *pki.Authority
}

func newCA(t testing.TB, name string, from time.Time, life time.Duration) *ca {
	t.Helper()
	anchor, err := pki.NewAnchor(name, from, life)
	if err != nil {
		t.Fatal(err)
	}
	return &ca{t: t, anchor: anchor, issuer: issuerOf(t, anchor, from, life)}
}

func issuerOf(t testing.TB, anchor *pki.Authority, from time.Time, life time.Duration) *pki.Authority {
	t.Helper()
	issuer, err := anchor.NewIssuer("identity.linkerd.cluster.local", from, life)
	if err != nil {
		t.Fatal(err)
	}
	return issuer
}

func (c *ca) root() *x509.Certificate { return c.anchor.Cert }

// issued is the issuer's chain.
func (c *ca) issued() []*x509.Certificate { return []*x509.Certificate{c.issuer.Cert} }

// leaf is what a proxy shows.
func (c *ca) leaf(until time.Time) []*x509.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "web"}, DNSNames: []string{"web"},
		NotBefore: now.Add(-time.Hour), NotAfter: until,
	}, c.issuer.Cert, key.Public(), c.issuer.Key)
	if err != nil {
		c.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		c.t.Fatal(err)
	}
	return []*x509.Certificate{leaf, c.issuer.Cert}
}

func certs(all ...*x509.Certificate) []*x509.Certificate { return all }

// names are those of the pods that a step waits for.
func names(s Step) string {
	var out []string
	for _, p := range s.Pods {
		out = append(out, p.Name())
	}
	return strings.Join(out, " ")
}

// The whole way of a rotation, each state as the facts of a cluster.
func TestNext(t *testing.T) {
	long := now.Add(-time.Hour)
	a, b := newCA(t, "old", long, year), newCA(t, "new", long, year)
	other := newCA(t, "of another cluster", long, year)
	dead := newCA(t, "dead", now.Add(-2*year), year)
	ended := now.Add(-time.Minute)
	proxy := func(name string, trusts []*x509.Certificate, chain []*x509.Certificate) Proxy {
		return Proxy{Namespace: "shop", Pod: name, Owner: "deployment/" + name, Trusts: trusts, Running: true, Started: long, Chain: chain}
	}
	both := certs(a.root(), b.root())
	oldLeaf, newLeaf := a.leaf(now.Add(20*time.Hour)), b.leaf(now.Add(20*time.Hour))
	// start is the first state after the command was given a new anchor.
	start := func() *Facts {
		return &Facts{
			Now: now, Namespace: "linkerd", Bundle: certs(a.root()), Config: certs(a.root()), Issuer: a.issued(),
			New: pki.Print(b.root()), Old: []string{pki.Print(a.root())}, Staged: b.issued(),
			Proxies: []Proxy{proxy("web", certs(a.root()), oldLeaf)},
		}
	}
	added := func() *Facts {
		f := start()
		f.Bundle, f.Config, f.Added, f.AddedAt = both, both, f.New, now.Add(-2*time.Minute)
		return f
	}
	trusted := func() *Facts {
		f := added()
		f.Proxies[0].Trusts = both
		return f
	}
	issued := func() *Facts {
		f := trusted()
		f.Issuer, f.IssuerChanged, f.Staged = b.issued(), now.Add(-settle), nil
		return f
	}
	renewed := func() *Facts {
		f := issued()
		f.Proxies[0].Chain = newLeaf
		return f
	}
	dropped := func() *Facts {
		f := renewed()
		f.Bundle, f.Config, f.DroppedAt = certs(b.root()), certs(b.root()), now.Add(-time.Minute)
		return f
	}
	change := func(f *Facts, how func(*Facts)) *Facts { how(f); return f }
	fromMap := func(started time.Time, running bool) func(*Facts) {
		return func(f *Facts) {
			f.Proxies = append(f.Proxies, Proxy{Namespace: "linkerd", Pod: "linkerd-destination-0", FromMap: true, Started: started, Running: running, Chain: newLeaf})
		}
	}
	for _, tt := range []struct {
		name string
		in   *Facts
		want Act
		pods string
	}{
		{"nothing asked for", change(start(), func(f *Facts) { f.New = "" }), Idle, ""},
		{"asked for", start(), AddAnchor, ""},
		{"somebody else's bundle", change(start(), func(f *Facts) { f.ExternalCA = true }), Blocked, ""},
		{"killed between bundle and config", change(added(), func(f *Facts) { f.Config = certs(a.root()) }), SyncConfig, ""},
		{"config in another order", change(trusted(), func(f *Facts) { f.Config = certs(b.root(), a.root()) }), ReplaceIssuer, ""},
		{"pods don't trust it yet", added(), RestartProxies, "shop/web"},
		{"pods don't trust it yet, nor may the injector know it", change(added(), func(f *Facts) { f.AddedAt = now.Add(-time.Second) }), AwaitNodes, ""},
		{"one pod of two", change(trusted(), func(f *Facts) { f.Proxies = append(f.Proxies, proxy("api", certs(a.root()), oldLeaf)) }), RestartProxies, "shop/api"},
		{"a pod that does not run yet", change(trusted(), func(f *Facts) {
			f.Proxies = append(f.Proxies, Proxy{Namespace: "shop", Pod: "late", Trusts: certs(a.root())})
		}), RestartProxies, "shop/late"},
		{"control plane started before", change(trusted(), fromMap(long, true)), RestartProxies, "linkerd/linkerd-destination-0"},
		{"control plane started within a moment", change(trusted(), fromMap(now.Add(-2*time.Minute+mapSlack/2), true)), RestartProxies, "linkerd/linkerd-destination-0"},
		{"control plane about to start", change(trusted(), fromMap(time.Time{}, false)), ReplaceIssuer, ""},
		{"control plane about to start, perhaps with the former bundle", change(trusted(), func(f *Facts) {
			f.AddedAt = now.Add(-time.Second)
			fromMap(time.Time{}, false)(f)
		}), AwaitNodes, ""},
		{"control plane started since", change(trusted(), fromMap(now.Add(-30*time.Second), true)), ReplaceIssuer, ""},
		{"all trust it", trusted(), ReplaceIssuer, ""},
		{"all trust it, no issuer at hand", change(trusted(), func(f *Facts) { f.Staged = nil }), Blocked, ""},
		{"all trust it, a wrong issuer at hand", change(trusted(), func(f *Facts) { f.Staged = other.issued() }), Blocked, ""},
		{"all trust it, issuer of cert-manager", change(trusted(), func(f *Facts) { f.ExternalIssuer = true }), Blocked, ""},
		{"everything has expired: no care is needed", change(added(), func(f *Facts) {
			f.Bundle = certs(dead.root(), b.root())
			f.Config, f.Old, f.Issuer = f.Bundle, []string{pki.Print(dead.root())}, dead.issued()
			f.Proxies = []Proxy{proxy("web", certs(dead.root()), nil)}
		}), ReplaceIssuer, ""},
		{"issuer just replaced", change(renewed(), func(f *Facts) { f.IssuerChanged = now.Add(-time.Second) }), AwaitNodes, ""},
		{"replaced in the future: a clock is wrong", change(renewed(), func(f *Facts) { f.IssuerChanged = now.Add(time.Hour) }), DropAnchors, ""},
		{"proxies not renewed", issued(), AwaitProxies, "shop/web"},
		{"one proxy of two", change(renewed(), func(f *Facts) { f.Proxies = append(f.Proxies, proxy("api", both, oldLeaf)) }), AwaitProxies, "shop/api"},
		{"a proxy that does not answer", change(renewed(), func(f *Facts) { f.Proxies[0].Chain, f.Proxies[0].Silent = nil, "connection refused" }), AwaitProxies, "shop/web"},
		{"a proxy that shows nothing", change(renewed(), func(f *Facts) { f.Proxies[0].Chain = nil }), AwaitProxies, "shop/web"},
		{"a proxy whose certificate ended", change(renewed(), func(f *Facts) { f.Proxies[0].Chain = b.leaf(ended) }), AwaitProxies, "shop/web"},
		{"a pod made from an old manifest meanwhile", change(renewed(), func(f *Facts) { f.Proxies = append(f.Proxies, proxy("api", certs(a.root()), newLeaf)) }), RestartProxies, "shop/api"},
		{"all renewed", renewed(), DropAnchors, ""},
		{"all renewed, another cluster's anchor stays", change(renewed(), func(f *Facts) { f.Bundle = append(f.Bundle, other.root()); f.Config = f.Bundle }), DropAnchors, ""},
		{"dropped, config not told", change(dropped(), func(f *Facts) { f.Config = both }), SyncConfig, ""},
		{"dropped", dropped(), Done, "shop/web"},
		{"dropped, and forgotten", change(dropped(), func(f *Facts) { f.Proxies[0].Trusts = certs(b.root()) }), Done, ""},
		{"dropped, control plane not restarted", change(dropped(), func(f *Facts) {
			f.AddedAt = now.Add(-time.Hour)
			f.Proxies = nil
			fromMap(now.Add(-30*time.Minute), true)(f)
		}), Done, "linkerd/linkerd-destination-0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Next(tt.in)
			if got.Act != tt.want || names(got) != tt.pods {
				t.Errorf("Next() = %s (%s) for %q, want %s for %q", got.Act, got.Why, names(got), tt.want, tt.pods)
			}
			if got.Why == "" {
				t.Error("no reason given")
			}
			for _, p := range got.Pods {
				if p.Why == "" {
					t.Errorf("no reason given for %s", p.Name())
				}
			}
		})
	}
}

// No order in which proxies renew, and no state in which one still shows an old
// chain, leads to the drop of the anchor above it.
func TestNoOrderCutsAProxyOff(t *testing.T) {
	long := now.Add(-time.Hour)
	a, b := newCA(t, "old", long, year), newCA(t, "new", long, year)
	both := certs(a.root(), b.root())
	chains := [][]*x509.Certificate{nil, a.leaf(now.Add(time.Hour)), a.leaf(now.Add(-time.Minute)), b.leaf(now.Add(time.Hour))}
	trusts := [][]*x509.Certificate{nil, certs(a.root()), certs(b.root()), both}
	const proxies, states = 2, 4 * 4
	for n := range states * states {
		f := &Facts{
			Now: now, Bundle: both, Config: both, Issuer: b.issued(), IssuerChanged: long,
			New: pki.Print(b.root()), Old: []string{pki.Print(a.root())},
		}
		safe := true
		for i, v := 0, n; i < proxies; i, v = i+1, v/states {
			p := Proxy{Pod: string(rune('a' + i)), Running: true, Trusts: trusts[v%4], Chain: chains[v/4%4]}
			safe = safe && v/4%4 == 3 && v%4 >= 2
			f.Proxies = append(f.Proxies, p)
		}
		if got := Next(f).Act == DropAnchors; got != safe {
			t.Errorf("state %d: drop = %t, want %t", n, got, safe)
		}
	}
}

func TestMayReplaceIssuer(t *testing.T) {
	long := now.Add(-time.Hour)
	a, b := newCA(t, "old", long, year), newCA(t, "new", long, year)
	second := []*x509.Certificate{issuerOf(t, a.anchor, long, year).Cert}
	dead := newCA(t, "dead", now.Add(-2*year), year)
	facts := func() *Facts {
		return &Facts{Now: now, Bundle: certs(a.root()), Issuer: a.issued(), Proxies: []Proxy{{Namespace: "shop", Pod: "web", Trusts: certs(a.root()), Running: true}}}
	}
	for _, tt := range []struct {
		name  string
		in    func(*Facts)
		chain []*x509.Certificate
		want  string
		pods  int
	}{
		{"under the same anchor", func(*Facts) {}, second, "", 0},
		{"under no anchor", func(*Facts) {}, b.issued(), "none of the mesh's trust anchors", 0},
		{"expired", func(f *Facts) { f.Bundle = certs(dead.root()) }, dead.issued(), "expired", 0},
		{"cert-manager's", func(f *Facts) { f.ExternalIssuer = true }, second, "somebody else", 0},
		{"an anchor is being rotated", func(f *Facts) { f.New = "x" }, second, "under way", 0},
		{"an anchor that pods don't know", func(f *Facts) { f.Bundle = certs(a.root(), b.root()) }, b.issued(), "would not trust", 1},
		{"recovery from an expired issuer", func(f *Facts) { f.Issuer = dead.issued(); f.Bundle = certs(a.root(), dead.root()) }, second, "", 0},
	} {
		why, pods := MayReplaceIssuer(change(facts(), tt.in), tt.chain)
		if (tt.want == "") != (why == "") || !strings.Contains(why, tt.want) || len(pods) != tt.pods {
			t.Errorf("%s: %q for %d pods, want %q for %d", tt.name, why, len(pods), tt.want, tt.pods)
		}
	}
}

func change(f *Facts, how func(*Facts)) *Facts { how(f); return f }

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"error forwarding port 4191 to pod a38: dial tcp4 127.0.0.1:4191: connect: connection refused": "nothing listens on its admin port",
		"asking its port 4191 for a certificate: remote error: tls: internal error":                    "it has no certificate yet",
		"short":                   "short",
		strings.Repeat("é", 1000): strings.Repeat("é", mostWords/2) + "…",
	} {
		if got := words(errors.New(text)); got != want {
			t.Errorf("words(%q) = %q, want %q", text, got, want)
		}
	}
	if got := words(fmt.Errorf("asking: %w", context.DeadlineExceeded)); got != "no answer in time" {
		t.Errorf("words() = %q", got)
	}
}

func TestSameSet(t *testing.T) {
	a, b := newCA(t, "a", now, year).root(), newCA(t, "b", now, year).root()
	for _, tt := range []struct {
		a, b []*x509.Certificate
		want bool
	}{{certs(a, b), certs(b, a), true}, {certs(a, a, b), certs(a, b), true}, {certs(a), certs(a, b), false}, {certs(a), certs(b), false}, {nil, nil, true}} {
		if diff := cmp.Diff(tt.want, sameSet(tt.a, tt.b)); diff != "" {
			t.Error(diff)
		}
	}
}
