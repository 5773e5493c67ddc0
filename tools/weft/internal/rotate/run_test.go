package rotate

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/pki"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// installed is a mesh of four pods. The issuer is under the anchor, or, as
// `weft install` makes it, the anchor itself.
func installed(t *testing.T, self bool) (*world, *pki.Authority) {
	t.Helper()
	anchor, err := pki.NewAnchor("identity.linkerd.cluster.local", time.Now().Add(-time.Hour), year)
	if err != nil {
		t.Fatal(err)
	}
	issuer := anchor
	if !self {
		issuer = issuerOf(t, anchor, time.Now().Add(-time.Hour), year)
	}
	w := newWorld(t, certs(anchor.Cert), issuer, "linkerd.io/tls")
	w.deploy("linkerd", "deployment/linkerd-destination")
	w.deploy("linkerd", "deployment/linkerd-identity")
	w.deploy("shop", "deployment/web")
	w.deploy("shop", "deployment/api")
	w.check()
	return w, anchor
}

func rotateAnchor(w *world, o options, out io.Writer) error {
	o.life, o.poll = defaultLife, time.Minute
	return runAnchor(w.t.(*testing.T).Context(), w, "linkerd", &o, out)
}

// finished says whether a rotation is complete in every object.
func finished(t *testing.T, w *world, old *pki.Authority) {
	t.Helper()
	f, cfg, err := Read(t.Context(), w, "linkerd", time.Now(), true)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case len(f.Bundle) != 1 || f.Bundle[0].Equal(old.Cert):
		t.Errorf("the bundle has %d anchors, the old one among them or none new", len(f.Bundle))
	case !sameSet(f.Config, f.Bundle):
		t.Error("linkerd-config has another bundle")
	case f.New != "" || len(f.Old) > 0 || len(f.Staged) > 0:
		t.Errorf("left behind: new %q, old %v, %d certificates staged", f.New, f.Old, len(f.Staged))
	case !under(f.Issuer, f.Bundle[0]):
		t.Error("the issuer is not under the new anchor")
	case cfg.Identity.Issuer.Scheme != "linkerd.io/tls" || cfg.ClusterDomain != "cluster.local":
		t.Errorf("linkerd-config has lost something: %+v", cfg)
	}
	if text := w.data("ConfigMap/" + configMap)[configKey].(string); !strings.Contains(strings.ReplaceAll(text, " ", ""), strings.ReplaceAll(strings.Split(pki.EncodeBundle(f.Issuer), "\n")[3], " ", "")) {
		t.Error("linkerd-config does not have the issuer's certificate")
	}
	for _, p := range f.Proxies {
		if len(f.Bundle) == 1 && !under(p.Chain, f.Bundle[0]) {
			t.Errorf("%s does not show a chain under the new anchor: %s", p.Name(), p.Silent)
		}
	}
}

// The whole rotation in one command, with restarts.
func TestRotateTrustAnchor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, old := installed(t, true)
		var out strings.Builder
		key := filepath.Join(t.TempDir(), "ca.key")
		if err := rotateAnchor(w, options{generate: true, restart: true, wait: 30 * time.Minute, saveKey: key}, &out); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		finished(t, w, old)
		if want := "linkerd linkerd shop shop"; strings.Join(w.order, " ") != want+" "+want {
			t.Errorf("restarted in the order %v, want the control plane first, twice", w.order)
		}
		if strings.Contains(out.String(), "PRIVATE KEY") {
			t.Error("a key was printed")
		}
		if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the anchor's key: %v, %v", info, err)
		}
		t.Logf("%d pairs of proxies checked over %d writes\n%s", w.handed, w.writes, out.String())
	})
}

// Killed before any of its writes, and run again without the files, the command
// comes to the same end; and no pair of proxies is parted on the way.
func TestRotateTrustAnchorSurvivesEveryKill(t *testing.T) {
	writes := 0
	for at := 1; at == 1 || at <= writes; at++ {
		synctest.Test(t, func(t *testing.T) {
			w, old := installed(t, true)
			w.pods = []*simPod{w.pods[0], w.pods[2]} // one of each kind
			w.failAt = at
			o := options{generate: true, restart: true, wait: 30 * time.Minute}
			err := rotateAnchor(w, o, io.Discard)
			if err == nil || !strings.Contains(err.Error(), "killed here") {
				t.Fatalf("write %d: %v, want to be killed", at, err)
			}
			f, _, err := Read(t.Context(), w, "linkerd", time.Now(), false)
			if err != nil {
				t.Fatal(err)
			}
			if f.New != "" { // it had begun
				o.generate = false
			}
			if err := rotateAnchor(w, o, io.Discard); err != nil {
				t.Fatalf("after a kill before write %d: %v", at, err)
			}
			finished(t, w, old)
			if at == 1 {
				writes = w.writes - 1 // the first of them was the one that failed
			}
		})
	}
	t.Logf("killed before each of %d writes", writes)
}

func exitCode(err error) int {
	if p, ok := errors.AsType[*say.Problem](err); ok {
		return p.Code
	}
	return 0
}

// Without --restart each step ends the command, and names the pods it waits for.
func TestRotateStepByStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, old := installed(t, false)
		web := w.pods[2]
		step := func(o options, code int, want ...string) {
			t.Helper()
			var out strings.Builder
			err := rotateAnchor(w, o, &out)
			text := out.String()
			if err != nil {
				text += err.Error()
			}
			if exitCode(err) != code {
				t.Fatalf("exit %d, want %d: %s", exitCode(err), code, text)
			}
			for _, s := range want {
				if !strings.Contains(text, s) {
					t.Errorf("no %q in\n%s", s, text)
				}
			}
		}
		later := func(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // virtual time

		step(options{}, usage.Exit, "no rotation of the trust anchor is under way")
		step(options{generate: true, dryRun: true}, 0, "add the new anchor")
		if w.writes > 0 {
			t.Fatalf("a dry run wrote %d times", w.writes)
		}
		step(options{generate: true}, exitWaiting, "add the new anchor", "wait for the nodes")
		later(injectLag)
		step(options{}, exitWaiting, "restart pods", "shop/"+web.name, "deployment/web")
		step(options{generate: true}, usage.Exit, "under way")
		step(options{}, exitWaiting, "shop/"+web.name)
		for _, p := range w.pods[:3] {
			w.restart(p)
		}
		step(options{}, exitWaiting, "shop/"+w.pods[3].name)
		w.restart(w.pods[3])
		step(options{}, exitWaiting, "replace the issuer", "wait for the nodes")
		step(options{abort: true}, 0, "cannot be given up any more")
		later(settle)
		web.deaf = true
		step(options{}, exitWaiting, "wait for the proxies", "shop/"+web.name, "could not be seen")
		later(renewEvery)
		step(options{}, exitWaiting, "shop/"+web.name)
		if len(w.bundle()) != 2 {
			t.Fatal("the old anchor is gone while a proxy could not be seen")
		}
		web.deaf = false
		step(options{}, 0, "drop the old anchors", "done", "still trusts what was dropped")
		finished(t, w, old)
	})
}

func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, old := installed(t, false)
		if err := rotateAnchor(w, options{generate: true}, io.Discard); exitCode(err) != exitWaiting {
			t.Fatal(err)
		}
		if err := rotateAnchor(w, options{abort: true}, io.Discard); err != nil {
			t.Fatal(err)
		}
		f, _, err := Read(t.Context(), w, "linkerd", time.Now(), true)
		if err != nil {
			t.Fatal(err)
		}
		if f.New != "" || len(f.Staged) > 0 || !sameSet(f.Bundle, certs(old.Cert)) || !sameSet(f.Config, f.Bundle) {
			t.Errorf("something is left: %+v", f)
		}
	})
}

// Everything has expired: the command that repairs it works from there.
func TestRotateRecoversFromExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, old := installed(t, true)
		w.broken = true  // nobody trusts anybody for a while: that is where we start
		time.Sleep(year) //nolint:forbidigo // virtual time
		if err := rotateAnchor(w, options{generate: true, restart: true, wait: 30 * time.Minute}, io.Discard); err != nil {
			t.Fatal(err)
		}
		finished(t, w, old)
		w.broken = false
		w.check()
	})
}

// The issuer twice, under the anchor whose key is in the cluster only.
func TestRotateIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, anchor := installed(t, true)
		run := func(o options, out io.Writer) error {
			o.life, o.poll = defaultLife, 10*time.Minute
			return runIssuer(t.Context(), w, "linkerd", &o, out)
		}
		key := filepath.Join(t.TempDir(), "ca.key")
		if err := run(options{}, io.Discard); exitCode(err) != usage.Exit || !strings.Contains(err.Error(), "would be lost") {
			t.Fatalf("without a place for the key: %v", err)
		}
		var out strings.Builder
		if err := run(options{saveKey: key, wait: 2 * time.Hour}, &out); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		first := w.seen.Cert
		// Now the anchor's key is in a file, and no longer in the cluster.
		if err := run(options{}, io.Discard); exitCode(err) != usage.Exit {
			t.Fatalf("without a key: %v", err)
		}
		if err := run(options{anchorKeyFile: key, restart: true, wait: time.Hour}, &out); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		if w.seen.Cert.Equal(first) || !under([]*x509.Certificate{w.seen.Cert}, anchor.Cert) {
			t.Error("the second issuer is not in place")
		}
		if strings.Contains(out.String(), "PRIVATE KEY") {
			t.Error("a key was printed")
		}
		t.Log(out.String())
	})
}

func TestStatusAndPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, anchor := installed(t, false)
		w.pods[1].deaf = true
		f, _, err := Read(t.Context(), w, "linkerd", time.Now(), true)
		if err != nil {
			t.Fatal(err)
		}
		text := Status(f)
		for _, want := range []string{short(anchor.Cert), "(in 364 days)", "the issuer's", "4 live, 1 showed no certificate", "linkerd/" + w.pods[1].name, "idle"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		var out strings.Builder
		if err := showPods(t.Context(), w, &out, "shop", "", []string{w.pods[2].name}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"POD " + w.pods[2].name + " (1 of 1)", "DNS:" + w.pods[2].name, "CA:FALSE", "SHA-256"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in\n%s", want, out.String())
			}
		}
		if strings.Contains(out.String(), "CA:TRUE") {
			t.Error("an authority is shown")
		}
		if err := showPods(t.Context(), w, io.Discard, "shop", "", []string{"nobody"}); err == nil {
			t.Error("a pod that does not exist was shown")
		}
		if err := showPods(t.Context(), w, io.Discard, "linkerd", "a=b", nil); err == nil {
			t.Error("no error for a proxy that shows nothing")
		}
	})
}

func TestOptions(t *testing.T) {
	good := options{life: time.Hour}
	for _, how := range []func(*options){
		func(o *options) { o.issuerFile = "a" },
		func(o *options) { o.issuerKeyFile = "a" },
		func(o *options) { o.issuerFile, o.issuerKeyFile, o.anchorKeyFile = "a", "b", "c" },
		func(o *options) { o.generate, o.anchorFile = true, "a" },
		func(o *options) { o.abort, o.generate = true, true },
		func(o *options) { o.life = time.Minute },
		func(o *options) { o.wait = -1 },
	} {
		o := good
		how(&o)
		if exitCode(o.check()) != usage.Exit {
			t.Errorf("%+v is accepted", o)
		}
	}
	if err := good.check(); err != nil {
		t.Error(err)
	}
}

// The files of a new anchor and issuer are judged before anything is changed.
func TestGivenFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, old := installed(t, false)
		dir := t.TempDir()
		file := func(name, text string, mode os.FileMode) string {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(text), mode); err != nil {
				t.Fatal(err)
			}
			return path
		}
		next := newCA(t, "next", time.Now().Add(-time.Hour), year)
		foreign := newCA(t, "foreign", time.Now().Add(-time.Hour), year)
		keyOf := func(a *pki.Authority) string {
			text, err := a.KeyPEM()
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		anchor, crt, key := file("ca.crt", next.anchor.PEM(), 0o644), file("issuer.crt", next.issuer.PEM(), 0o644), file("issuer.key", keyOf(next.issuer), 0o600)
		caKey := file("ca.key", keyOf(next.anchor), 0o600)
		for _, tt := range []struct {
			name, want string
			o          options
		}{
			{"key that others may read", "is not private", options{anchorFile: anchor, issuerFile: crt, issuerKeyFile: file("open.key", keyOf(next.issuer), 0o644)}},
			{"key of another", "does not belong", options{anchorFile: anchor, issuerFile: crt, issuerKeyFile: file("other.key", keyOf(foreign.issuer), 0o600)}},
			{"no key in the file", "no private key", options{anchorFile: anchor, issuerFile: crt, issuerKeyFile: file("none.key", crt, 0o600)}},
			{"issuer under another anchor", "not under the new trust anchor", options{anchorFile: anchor, issuerFile: file("f.crt", foreign.issuer.PEM(), 0o644), issuerKeyFile: file("f.key", keyOf(foreign.issuer), 0o600)}},
			{"two anchors", "more than one", options{anchorFile: file("two.crt", next.anchor.PEM()+foreign.anchor.PEM(), 0o644), issuerFile: crt, issuerKeyFile: key}},
			{"damaged anchor", "1 damaged", options{anchorFile: file("bad.crt", next.anchor.PEM()+"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 0o644)}},
			{"no such file", "cannot be read", options{anchorFile: filepath.Join(dir, "none")}},
			{"key of another anchor", "belongs to no trust anchor", options{anchorFile: anchor, anchorKeyFile: file("fca.key", keyOf(foreign.anchor), 0o600)}},
		} {
			err := rotateAnchor(w, tt.o, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "PRIVATE") {
				t.Errorf("%s: the error quotes a key", tt.name)
			}
		}
		if w.writes > 0 {
			t.Fatalf("%d writes for files that were refused", w.writes)
		}
		if err := rotateAnchor(w, options{anchorFile: anchor, anchorKeyFile: caKey}, io.Discard); exitCode(err) != exitWaiting {
			t.Fatal(err)
		}
		other := file("foreign.crt", foreign.anchor.PEM(), 0o644)
		if err := rotateAnchor(w, options{anchorFile: other}, io.Discard); err == nil || !strings.Contains(err.Error(), "another trust anchor is under way") {
			t.Errorf("another anchor in the midst: %v", err)
		}
		// The same files again, with an issuer of one's own, and to the end.
		if err := rotateAnchor(w, options{anchorFile: anchor, issuerFile: crt, issuerKeyFile: key, restart: true, wait: time.Hour}, io.Discard); err != nil {
			t.Fatal(err)
		}
		finished(t, w, old)
		if !w.seen.Cert.Equal(next.issuer.Cert) {
			t.Error("another issuer than the given one is in place")
		}
	})
}

// cert-manager's issuer: the command does its part and says who does the other.
func TestRotateWithAnExternalIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		anchor, err := pki.NewAnchor("root", time.Now().Add(-time.Hour), year)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, certs(anchor.Cert), issuerOf(t, anchor, time.Now().Add(-time.Hour), year), externalKind)
		w.objects["Secret/"+issuerSecret].Object["data"] = map[string]any{"tls.crt": w.data("Secret/" + issuerSecret)["crt.pem"]}
		w.deploy("shop", "deployment/web")
		err = rotateAnchor(w, options{generate: true, restart: true, wait: time.Hour}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "have it signed by the new anchor") {
			t.Errorf("%v, want to be told who must act", err)
		}
		if err := runIssuer(context.WithoutCancel(t.Context()), w, "linkerd", &options{life: year, poll: time.Minute}, io.Discard); err == nil {
			t.Error("an issuer of somebody else was replaced")
		}
	})
}
