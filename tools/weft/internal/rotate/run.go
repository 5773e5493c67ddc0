package rotate

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/pki"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// runAnchor takes the steps of a rotation of the trust anchor as far as it can.
func runAnchor(ctx context.Context, to writer, ns string, o *options, out io.Writer) error {
	f, cfg, err := look(ctx, to, ns)
	if err != nil {
		return err
	}
	if o.abort {
		Probe(ctx, to, f.Proxies)
		return abort(ctx, to, f, o, out)
	}
	anchor, err := o.begin(ctx, to, f, "identity."+ns+"."+cfg.trustDomain(), out)
	if err != nil {
		return err
	}
	restarted := make(map[string]time.Time)
	for last := Idle; ; {
		step := Next(f)
		if step.Act != last || !step.Act.Waits() {
			fmt.Fprintf(out, "%s: %s\n%s", step.Act, step.Why, list(step.Pods))
		}
		last = step.Act
		switch {
		case step.Act == Blocked:
			return &say.Problem{What: "the rotation cannot go on", Why: step.Why, Next: "do that, then run the same command again"}
		case o.dryRun || step.Act == Idle:
			return nil
		case step.Act.Waits():
			f, err = o.await(ctx, to, f, step, restarted, out)
		default:
			if err = Do(ctx, to, f, step, anchor); err == nil && step.Act == Done {
				return farewell(out, step)
			}
			if err == nil {
				f, _, err = look(ctx, to, ns)
			}
		}
		if err != nil {
			return err
		}
	}
}

// begin makes facts of what was asked for: a new rotation, or more for the one
// that is under way. It returns the new anchor if it was given or made.
func (o *options) begin(ctx context.Context, to writer, f *Facts, name string, out io.Writer) (*x509.Certificate, error) {
	given := o.anchorFile != "" || o.generate
	switch {
	case !given && f.New == "":
		return nil, &say.Problem{
			What: "no rotation of the trust anchor is under way", Why: "and no new anchor is given",
			Next: "give one with --identity-trust-anchors-file (and an issuer), or have both made with --generate", Code: usage.Exit,
		}
	case o.generate && f.New != "":
		return nil, &say.Problem{
			What: "a rotation of the trust anchor is under way", Why: "to the anchor with SHA-256 " + f.New[:min(12, len(f.New))],
			Next: "go on with it by leaving --generate away, or give it up with --abort", Code: usage.Exit,
		}
	case f.New == "" && f.ExternalCA:
		return nil, &say.Problem{
			What: "the trust anchors are not the mesh's to change", Why: "identity.externalCA is set: somebody else writes ConfigMap " + rootsMap,
			Next: "add the new anchor there; `weft identity rotate` shows which pods trust it and which show it",
		}
	}
	anchor, issuer, err := o.authorities(f, name, out)
	if err != nil {
		return nil, err
	}
	if anchor != nil && f.New == "" {
		f.New = pki.Print(anchor)
		f.Old = nil
		for _, a := range f.roots(f.Issuer) {
			if !a.Equal(anchor) {
				f.Old = append(f.Old, pki.Print(a))
			}
		}
	}
	if issuer == nil || o.dryRun {
		return anchor, nil
	}
	f.Staged = append([]*x509.Certificate{issuer.Cert}, issuer.Chain...)
	return anchor, Stage(ctx, to, f.Namespace, issuer)
}

// authorities reads or makes the new anchor and issuer; either may be nil.
func (o *options) authorities(f *Facts, name string, out io.Writer) (*x509.Certificate, *pki.Authority, error) {
	if o.generate {
		made, err := pki.NewAnchor("root."+strings.TrimPrefix(name, "identity."), f.Now, o.life)
		if err != nil {
			return nil, nil, err
		}
		issuer, err := made.NewIssuer(name, f.Now, o.life)
		if err != nil {
			return nil, nil, err
		}
		if o.saveKey != "" && !o.dryRun {
			if err := pki.WriteKey(o.saveKey, made.Key); err != nil {
				return nil, nil, err
			}
			fmt.Fprintf(out, "the key of the new trust anchor is in %s: keep it off the cluster\n", o.saveKey)
		}
		return made.Cert, issuer, nil
	}
	var anchor *x509.Certificate
	if o.anchorFile != "" {
		all, err := pki.ReadCertificates(o.anchorFile)
		if err != nil {
			return nil, nil, err
		}
		anchor = all[0]
		switch {
		case len(all) != 1:
			return nil, nil, &say.Problem{What: "there is more than one certificate in " + o.anchorFile, Next: "give the new trust anchor alone", Code: usage.Exit}
		case !anchor.IsCA || f.Now.After(anchor.NotAfter) || f.Now.Before(anchor.NotBefore):
			return nil, nil, &say.Problem{What: "the certificate in " + o.anchorFile + " is no trust anchor", Why: "it is not an authority, or not valid now", Next: "give another"}
		case f.New != "" && pki.Print(anchor) != f.New:
			return nil, nil, &say.Problem{
				What: "a rotation to another trust anchor is under way", Why: "to the one with SHA-256 " + f.New[:min(12, len(f.New))],
				Next: "finish that first, without --identity-trust-anchors-file, or give it up with --abort",
			}
		}
	}
	known := anchor
	if known == nil {
		known = f.anchor(f.New)
	}
	var anchors []*x509.Certificate
	if known != nil {
		anchors = append(anchors, known)
	}
	issuer, err := o.issuer(name, anchors, f.Now)
	if err != nil {
		return nil, nil, err
	}
	if issuer != nil {
		if err := pki.Leads(append([]*x509.Certificate{issuer.Cert}, issuer.Chain...), anchors, f.Now); err != nil {
			return nil, nil, &say.Problem{
				What: "the issuer is not under the new trust anchor", Why: err.Error(),
				Next: "give an issuer that the new anchor signed", Err: err,
			}
		}
	}
	return anchor, issuer, nil
}

// await waits for what a step waits for, up to --wait, and reads anew.
func (o *options) await(ctx context.Context, to writer, f *Facts, step Step, restarted map[string]time.Time, out io.Writer) (*Facts, error) {
	timer := time.NewTimer(o.wait)
	defer timer.Stop()
	tick := time.NewTicker(o.poll)
	defer tick.Stop()
	for {
		if o.restart {
			if err := restartAll(ctx, to, f.Namespace, step, restarted, out); err != nil {
				return nil, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-timer.C:
			return nil, waiting(step, o)
		case <-tick.C:
		}
		next, _, err := look(ctx, to, f.Namespace)
		if err != nil {
			return nil, err
		}
		if now := Next(next); now.Act == step.Act {
			step = now
			continue
		}
		return next, nil
	}
}

// restartAll restarts the owner of each pod of a step: once, and again if a pod
// that came after that is no better, since the injector did not know yet. The
// control plane comes first, and the others when it is through: a pod that is
// made while no injector is there would come up without a proxy.
func restartAll(ctx context.Context, to writer, mesh string, step Step, done map[string]time.Time, out io.Writer) error {
	pods := step.Pods
	if slices.ContainsFunc(pods, func(p Waiting) bool { return p.Namespace == mesh && p.Owner != "" }) {
		pods = slices.DeleteFunc(slices.Clone(pods), func(p Waiting) bool { return p.Namespace != mesh })
	}
	for _, p := range pods {
		key := fmt.Sprintf("%d %s %s", step.Act, p.Namespace, p.Owner)
		last, was := done[key]
		if p.Owner == "" || was && (!p.Started.After(last) || time.Since(last) < settle) {
			continue
		}
		done[key] = time.Now()
		if err := Restart(ctx, to, p.Namespace, p.Owner, time.Now()); err != nil {
			return err
		}
		fmt.Fprintf(out, "restarted %s in namespace %s\n", p.Owner, p.Namespace)
	}
	return nil
}

// waiting is how a command ends that has to be run again.
func waiting(step Step, o *options) error {
	next := "run the same command again later, without the files; --wait 10m waits"
	switch step.Act {
	case RestartProxies:
		next = "restart them (or let --restart do it), then run the command again, without the files; --wait 10m waits"
	case AwaitNodes:
		next = fmt.Sprintf("run the command again in %s; --wait 5m waits", step.For.Round(time.Second))
	case AwaitProxies:
		next = "restart them (or let --restart do it) or wait until they renew, then run the command again"
	}
	why := step.Why
	if n := len(step.Pods); n > 0 {
		why = fmt.Sprintf("%s: %d of them, the first is %s", why, n, step.Pods[0].Name())
	}
	if bare := slices.IndexFunc(step.Pods, func(p Waiting) bool { return p.Owner == "" }); bare >= 0 && o.restart {
		why += "; nothing makes " + step.Pods[bare].Name() + " anew: delete it or make it again yourself"
	}
	return &say.Problem{What: "not complete: " + step.Act.String(), Why: why, Next: next, Code: exitWaiting}
}

func farewell(out io.Writer, step Step) error {
	if len(step.Pods) > 0 {
		fmt.Fprintln(out, "If the old anchor's key may be in wrong hands, restart these pods too.")
	}
	fmt.Fprintln(out, "If you give Helm certificates (identityTrustAnchorsPEM and identity.issuer.tls), give it the new ones, or its next upgrade brings back the old ones.")
	return nil
}

func abort(ctx context.Context, to writer, f *Facts, o *options, out io.Writer) error {
	if f.New == "" {
		return &say.Problem{What: "no rotation of the trust anchor is under way", Next: "there is nothing to give up"}
	}
	if o.dryRun {
		fmt.Fprintln(out, "the new trust anchor would be taken out of the bundle")
		return nil
	}
	if err := Abort(ctx, to, f); err != nil {
		return err
	}
	fmt.Fprintln(out, "given up: the new trust anchor is out of the bundle, its issuer is deleted")
	return nil
}
