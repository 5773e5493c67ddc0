package rotate

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/pki"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// runIssuer replaces the issuer by another one under the present anchors.
func runIssuer(ctx context.Context, to writer, ns string, o *options, out io.Writer) error {
	f, cfg, err := Read(ctx, to, ns, time.Now(), false)
	if err != nil {
		return err
	}
	issuer, root, err := o.nextIssuer(ctx, to, f, "identity."+ns+"."+cfg.trustDomain())
	if err != nil {
		return err
	}
	chain := append([]*x509.Certificate{issuer.Cert}, issuer.Chain...)
	if why, pods := MayReplaceIssuer(f, chain); why != "" {
		fmt.Fprint(out, list(pods))
		return &say.Problem{What: "the issuer is not replaced", Why: why, Next: "`weft identity rotate` shows how things stand"}
	}
	fmt.Fprintf(out, "replace the issuer: the new one ends %s\n", ends(issuer.Cert, f.Now))
	if o.dryRun {
		return nil
	}
	if root != nil {
		if err := pki.WriteKey(o.saveKey, root.Key); err != nil {
			return err
		}
		fmt.Fprintf(out, "the key of the trust anchor is in %s: keep it off the cluster\n", o.saveKey)
	}
	if err := f.Replace(ctx, to, issuer); err != nil {
		return err
	}
	fmt.Fprintln(out, "replaced: proxies follow as they renew. If you give Helm identity.issuer.tls, give it the new one, or its next upgrade brings back the old one.")
	if o.wait == 0 && !o.restart {
		return nil
	}
	return o.follow(ctx, to, f, issuer, out)
}

// nextIssuer is the issuer to put in place. root is an anchor whose key must be
// saved, since it is only in the Secret that is about to be written over.
func (o *options) nextIssuer(ctx context.Context, from cluster, f *Facts, name string) (issuer, root *pki.Authority, err error) {
	if issuer, err = o.issuer(name, f.Bundle, f.Now); issuer != nil || err != nil {
		return issuer, nil, err
	}
	if len(f.Issuer) == 0 || f.ExternalIssuer || !slices.ContainsFunc(f.Bundle, f.Issuer[0].Equal) {
		return nil, nil, &say.Problem{
			What: "there is nothing to sign a new issuer with", Why: "the trust anchor's key is not in the cluster, as it should be",
			Next: "give it with --trust-anchor-key-file, or give an issuer's files", Code: usage.Exit,
		}
	}
	if o.saveKey == "" {
		return nil, nil, &say.Problem{
			What: "the present issuer is the trust anchor itself, and its key would be lost", Why: "it signs the new issuer, which takes its place in Secret " + issuerSecret,
			Next: "say where to keep it with --save-trust-anchor-key FILE", Code: usage.Exit,
		}
	}
	if root, err = f.PresentKey(ctx, from); err != nil {
		return nil, nil, err
	}
	issuer, err = root.NewIssuer(name, f.Now, o.life)
	return issuer, root, err
}

// follow waits until every live proxy shows a certificate of the new issuer.
func (o *options) follow(ctx context.Context, to writer, f *Facts, issuer *pki.Authority, out io.Writer) error {
	tick := time.NewTicker(o.poll)
	defer tick.Stop()
	// Restarted before the kubelets brought the issuer, pods would get a
	// certificate of the former one again.
	restartAt, restarted := f.Now.Add(settle), make(map[string]time.Time)
	for end := time.Now().Add(o.wait); ; {
		now, _, err := Read(ctx, to, f.Namespace, time.Now(), true)
		if err != nil {
			return err
		}
		step := Step{Act: AwaitProxies, Why: "these pods still show a certificate of the former issuer", Pods: now.waiting(func(p Proxy) string {
			switch {
			case !p.Running:
				return ""
			case p.Silent != "":
				return "its certificate could not be seen: " + p.Silent
			case !slices.ContainsFunc(p.Chain, issuer.Cert.Equal):
				return "shows a certificate of the former issuer"
			}
			return ""
		})}
		if len(step.Pods) == 0 {
			fmt.Fprintf(out, "done: all %d live proxies show certificates of the new issuer\n", len(now.Proxies))
			return nil
		}
		if o.restart && now.Now.After(restartAt) {
			if err := restartAll(ctx, to, f.Namespace, step, restarted, out); err != nil {
				return err
			}
		}
		if time.Now().After(end) {
			return waiting(step, o)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
