package issuer

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weftmesh/weft/services/identity/internal/issue/issuetest"
)

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	// The new file takes the old one's place in one step, as editors do.
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// world is a directory with an issuer and an anchors file.
type world struct {
	t     *testing.T
	root  *issuetest.Authority
	files Files
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, root: issuetest.NewAuthority(t, "root", nil, issuetest.Now, 1000*time.Hour, nil)}
	w.files = Files{
		Dir: filepath.Join(t.TempDir(), "issuer"), Scheme: "kubernetes.io/tls",
		Anchors: filepath.Join(t.TempDir(), "ca-bundle.crt"),
	}
	if err := os.Mkdir(w.files.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, w.files.Anchors, w.root.PEM())
	return w
}

func (w *world) authority(name string) *issuetest.Authority {
	return issuetest.NewAuthority(w.t, name, w.root, issuetest.Now, time.Hour, nil)
}

func (w *world) put(a *issuetest.Authority) {
	write(w.t, filepath.Join(w.files.Dir, "tls.key"), a.KeyPEM(w.t))
	write(w.t, filepath.Join(w.files.Dir, "tls.crt"), a.PEM())
}

// mount puts an authority as a mounted Secret has it: files link through
// ..data, which is swapped for another directory by a rename.
func (w *world) mount(version string, a *issuetest.Authority) {
	w.t.Helper()
	dir := filepath.Join(w.files.Dir, version)
	if err := os.Mkdir(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	write(w.t, filepath.Join(dir, "tls.key"), a.KeyPEM(w.t))
	write(w.t, filepath.Join(dir, "tls.crt"), a.PEM())
	link := filepath.Join(w.files.Dir, "..data")
	if err := os.Symlink(version, link+"_tmp"); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(link+"_tmp", link); err != nil {
		w.t.Fatal(err)
	}
	for _, f := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", f), filepath.Join(w.files.Dir, f)); err != nil && !os.IsExist(err) {
			w.t.Fatal(err)
		}
	}
}

func (w *world) holder() (*Holder, *prometheus.Registry) {
	reg := prometheus.NewPedanticRegistry()
	return New(w.files, func() time.Time { return issuetest.Now }, nil, reg), reg
}

func name(h *Holder) string {
	if i := h.Current(); i != nil {
		return i.Chain[0].Subject.CommonName
	}
	return ""
}

// until polls, since the kernel reports a file's change when it likes.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("timed out: %s", what)
		}
	}
}

func start(t *testing.T, h *Holder) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = h.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func TestLoadKeepsTheOldIssuer(t *testing.T) {
	w := newWorld(t)
	h, reg := w.holder()
	if err := h.Load(); err == nil {
		t.Error("Load() without files = nil")
	}
	if h.Ready() == nil {
		t.Error("Ready() before the first load = nil")
	}
	first := w.authority("first")
	w.put(first)
	if err := h.Load(); err != nil {
		t.Fatal(err)
	}
	foreign := issuetest.NewAuthority(t, "foreign", nil, issuetest.Now, time.Hour, nil)
	leaf := issuetest.NewAuthority(t, "leaf", w.root, issuetest.Now, time.Hour, func(c *x509.Certificate) { c.IsCA = false; c.KeyUsage = 0 })
	noSign := issuetest.NewAuthority(t, "nosign", w.root, issuetest.Now, time.Hour, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature })
	old := issuetest.NewAuthority(t, "old", w.root, issuetest.Now.Add(-10*time.Hour), time.Hour, nil)
	tests := []struct {
		name     string
		crt, key []byte
		want     string
	}{
		{"another key", first.PEM(), w.authority("x").KeyPEM(t), "does not belong"},
		{"no key", first.PEM(), nil, "no private key"},
		{"damaged key", first.PEM(), []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), "cannot be parsed"},
		{"no certificate", nil, first.KeyPEM(t), "0 certificates"},
		{"damaged certificate", []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), first.KeyPEM(t), "1 damaged"},
		{"foreign anchors", foreign.PEM(), foreign.KeyPEM(t), "trust anchors"},
		{"not an authority", leaf.PEM(), leaf.KeyPEM(t), "not an authority"},
		{"may not sign", noSign.PEM(), noSign.KeyPEM(t), "may not sign"},
		{"expired", old.PEM(), old.KeyPEM(t), "trust anchors"},
		{"huge", bytes.Repeat([]byte("x"), maxFile+1), first.KeyPEM(t), "larger"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			write(t, filepath.Join(w.files.Dir, "tls.crt"), tt.crt)
			write(t, filepath.Join(w.files.Dir, "tls.key"), tt.key)
			err := h.Load()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Load() = %v, want an error with %q", err, tt.want)
			}
			if got := name(h); got != "first" {
				t.Errorf("issuer in use = %q, want the first", got)
			}
		})
	}
	w.put(first)
	if err := h.Load(); err != nil || h.Ready() != nil {
		t.Errorf("Load() after repair = %v, Ready() = %v", err, h.Ready())
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP issuer_cert_ttl_seconds Seconds until the issuer in use expires; 0 until one is loaded.
# TYPE issuer_cert_ttl_seconds gauge
issuer_cert_ttl_seconds 3600
`), "issuer_cert_ttl_seconds"); err != nil {
		t.Error(err)
	}
}

// The same failure, found again by each poll, is reported once.
func TestRejectReportsOnce(t *testing.T) {
	w := newWorld(t)
	h, _ := w.holder()
	for range 3 {
		if h.Load() == nil {
			t.Fatal("Load() = nil")
		}
	}
	if got := testutil.ToFloat64(h.reloads.WithLabelValues("rejected")); got != 1 {
		t.Errorf("rejected = %v, want 1", got)
	}
}

func TestLinkerdFileNames(t *testing.T) {
	w := newWorld(t)
	w.files.Scheme = "linkerd.io/tls"
	a := w.authority("named")
	write(t, filepath.Join(w.files.Dir, "crt.pem"), a.PEM())
	write(t, filepath.Join(w.files.Dir, "key.pem"), a.KeyPEM(t))
	h, _ := w.holder()
	if err := h.Load(); err != nil {
		t.Error(err)
	}
}

func TestOtherCurves(t *testing.T) {
	w := newWorld(t)
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, w.authority("p384").Cert, w.root.Cert, key.Public(), w.root.Key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	w.put(&issuetest.Authority{Cert: cert, Key: key})
	h, _ := w.holder()
	if err := h.Load(); err == nil || !strings.Contains(err.Error(), "P-256") {
		t.Errorf("Load() = %v, want an error about P-256", err)
	}
}

// One bad block must not take the good anchors with it (complaint B5).
func TestCertificatesAreReadLeniently(t *testing.T) {
	a := issuetest.NewAuthority(t, "a", nil, issuetest.Now, time.Hour, nil)
	b := issuetest.NewAuthority(t, "b", nil, issuetest.Now, time.Hour, nil)
	bundle := bytes.Join([][]byte{
		[]byte("a comment\r\n"), a.PEM(),
		[]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
		[]byte("-----BEGIN GARBAGE-----\nAAAA\n-----END GARBAGE-----\n"),
		bytes.ReplaceAll(b.PEM(), []byte("\n"), []byte("\r\n")), a.PEM(), []byte("\n\n"),
	}, nil)
	good, bad := Certificates(bundle)
	if len(good) != 2 || bad != 1 {
		t.Errorf("Certificates() = %d good, %d bad, want 2 and 1", len(good), bad)
	}
}

// Three rotations, three reloads, whatever the way the files are replaced
// (complaint B2); the poll is too slow to help.
func TestRunFollowsReplacedFiles(t *testing.T) {
	w := newWorld(t)
	w.put(w.authority("v0"))
	h, _ := w.holder()
	h.poll = time.Hour
	start(t, h)
	until(t, "the first load", func() bool { return name(h) == "v0" })
	for i := 1; i <= 3; i++ {
		want := fmt.Sprintf("v%d", i)
		w.put(w.authority(want))
		until(t, want, func() bool { return name(h) == want })
	}
}

func TestRunFollowsMountedSecrets(t *testing.T) {
	w := newWorld(t)
	w.mount("d0", w.authority("v0"))
	h, _ := w.holder()
	h.poll = time.Hour
	start(t, h)
	until(t, "the first load", func() bool { return name(h) == "v0" })
	for i := 1; i <= 3; i++ {
		// Two swaps at once: the last one counts (complaint B1).
		w.mount(fmt.Sprintf("d%da", i), w.authority("passing"))
		want := fmt.Sprintf("v%d", i)
		w.mount(fmt.Sprintf("d%db", i), w.authority(want))
		until(t, want, func() bool { return name(h) == want })
	}
	if got := testutil.ToFloat64(h.reloads.WithLabelValues("rejected")); got != 0 {
		t.Errorf("rejected = %v: a swap paired a certificate with another's key", got)
	}
}

// The directory itself is replaced, which the kernel does not report: the poll
// finds it.
func TestRunFindsWhatTheKernelDidNotReport(t *testing.T) {
	w := newWorld(t)
	w.put(w.authority("v0"))
	h, _ := w.holder()
	h.poll = 5 * time.Millisecond
	start(t, h)
	until(t, "the first load", func() bool { return name(h) == "v0" })
	if err := os.Rename(w.files.Dir, w.files.Dir+".gone"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(w.files.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.put(w.authority("v1"))
	until(t, "v1", func() bool { return name(h) == "v1" })
}

// Readers use the issuer while it is replaced over and over: run with -race.
func TestReloadRace(t *testing.T) {
	w := newWorld(t)
	w.put(w.authority("v0"))
	h, _ := w.holder()
	h.poll = time.Millisecond
	start(t, h)
	until(t, "the first load", func() bool { return h.Current() != nil })
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					i := h.Current()
					if err := i.Verify(issuetest.Now); err != nil {
						t.Errorf("Verify() = %v", err)
						return
					}
					if !i.Chain[0].PublicKey.(*ecdsa.PublicKey).Equal(i.Key.Public()) {
						t.Error("certificate and key do not belong together")
						return
					}
				}
			}
		})
	}
	for i := 1; i <= 20; i++ {
		w.put(w.authority(fmt.Sprintf("v%d", i)))
	}
	until(t, "the last one", func() bool { return name(h) == "v20" })
	close(stop)
	readers.Wait()
}

func FuzzCertificates(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := content{crt: b, key: b, anchors: b}
		if i, _, err := c.parse(issuetest.Now); err == nil && i == nil {
			t.Error("no issuer and no error")
		}
	})
}
