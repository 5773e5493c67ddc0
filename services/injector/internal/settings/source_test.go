package settings_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weftmesh/weft/services/injector/internal/settings"
)

// anchor is a certificate, PEM.
func anchor(t *testing.T, name string) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

type files struct {
	t   *testing.T
	dir string
}

func (f files) path(name string) string { return filepath.Join(f.dir, name) }

func (f files) write(name, content string) {
	f.t.Helper()
	if err := os.WriteFile(f.path(name), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func TestFollowsTheFiles(t *testing.T) {
	f := files{t, t.TempDir()}
	s := &settings.Source{Path: f.path("values"), AnchorsPath: f.path("ca.crt"), Version: "v1"}
	reg := prometheus.NewPedanticRegistry()
	s.Measure(reg)
	get := func() *settings.Settings {
		t.Helper()
		got, err := s.Get()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	is := func(got *settings.Settings, domain, anchors string) {
		t.Helper()
		if got.Values.ClusterDomain != domain || got.Anchors != anchors {
			t.Errorf("domain %q, anchors %.40q; want %q, %.40q", got.Values.ClusterDomain, got.Anchors, domain, anchors)
		}
	}
	one, two := anchor(t, "one"), anchor(t, "two")
	if _, err := s.Get(); err == nil {
		t.Error("Get() without files = nil")
	}
	f.write("values", "clusterDomain: one.example")
	f.write("ca.crt", "no certificate")
	if _, err := s.Get(); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("Get() without an anchor = %v", err)
	}
	f.write("ca.crt", one)
	first := get()
	is(first, "one.example", one)
	if get() != first {
		t.Error("unchanged files were parsed again")
	}
	f.write("values", "clusterDomain: two.example")
	is(get(), "two.example", one)

	// A bad file doesn't keep the other from changing.
	for range 3 {
		f.write("values", "clusterDomain: [")
		is(get(), "two.example", one)
	}
	f.write("ca.crt", two)
	is(get(), "two.example", two)
	f.write("ca.crt", "")
	is(get(), "two.example", two)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP weft_injector_settings_rejected_total Times that a settings file became unusable, so that its former content stayed in use; file is values or anchors.
# TYPE weft_injector_settings_rejected_total counter
weft_injector_settings_rejected_total{file="anchors"} 1
weft_injector_settings_rejected_total{file="values"} 1
# HELP weft_injector_settings_stale 1 while the values or the trust anchors in use are not what their file has, since that is unusable.
# TYPE weft_injector_settings_stale gauge
weft_injector_settings_stale 1
`)); err != nil {
		t.Error(err)
	}
	f.write("ca.crt", "junk\r\n"+two+"\n\n"+one) // the good ones count
	f.write("values", "clusterDomain: three.example")
	is(get(), "three.example", "junk\r\n"+two+"\n\n"+one)
	if err := os.Remove(f.path("values")); err != nil {
		t.Fatal(err)
	}
	is(get(), "three.example", "junk\r\n"+two+"\n\n"+one)
	f.write("values", "clusterDomain: three.example")
	is(get(), "three.example", "junk\r\n"+two+"\n\n"+one)
	f.write("values", strings.Repeat("#", 2<<20))
	is(get(), "three.example", "junk\r\n"+two+"\n\n"+one)
}

func TestAnchorsFromValues(t *testing.T) {
	f := files{t, t.TempDir()}
	pem := anchor(t, "one")
	f.write("values", "identityTrustAnchorsPEM: |\n  "+strings.ReplaceAll(pem, "\n", "\n  "))
	got, err := (&settings.Source{Path: f.path("values")}).Get()
	if err != nil || strings.TrimSpace(got.Anchors) != strings.TrimSpace(pem) {
		t.Errorf("Get() = %+v, %v", got, err)
	}
	if _, err := (&settings.Source{}).Get(); err == nil {
		t.Error("Get() without any anchors = nil")
	}
}
