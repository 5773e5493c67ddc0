package issuer

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weftmesh/weft/services/identity/internal/issue/issuetest"
)

// told makes a holder that writes down what it tells.
func (w *world) told() (*Holder, *[]string) {
	var got []string
	h := New(w.files, func() time.Time { return issuetest.Now }, func(c Change) {
		switch {
		case c.Err != nil:
			got = append(got, "skipped")
		case c.First:
			got = append(got, "first")
		default:
			got = append(got, "updated")
		}
	}, prometheus.NewPedanticRegistry())
	return h, &got
}

// Trust anchors are a set: order, repeats, comments and line ends are no
// rotation, another certificate is (complaint B4). No restart is needed.
func TestAnchorsAreASet(t *testing.T) {
	w := newWorld(t)
	a := w.root.PEM()
	b := issuetest.NewAuthority(t, "b", nil, issuetest.Now, 10*time.Hour, nil)
	c := issuetest.NewAuthority(t, "c", nil, issuetest.Now, 2000*time.Hour, nil)
	p384 := func() []byte {
		key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := *c.Cert
		template.PublicKey = nil // CreateCertificate would compare it with the key
		der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return (&issuetest.Authority{Cert: cert}).PEM()
	}()
	junk := []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	w.put(w.authority("issuer"))
	h, told := w.told()
	steps := []struct {
		name   string
		bundle []byte
		want   string // what is told; "" is nothing
		most   int    // anchors in use
	}{
		{"start", join(a, b.PEM()), "first", 2},
		{"other order", join(b.PEM(), a), "", 2},
		{"twice", join(b.PEM(), a, b.PEM()), "", 2},
		{"comments, blank lines, CRLF", join([]byte("# the old one\r\n\r\n"), bytes.ReplaceAll(a, []byte("\n"), []byte("\r\n")), []byte("\n\n\n"), b.PEM(), []byte("\n\n")), "", 2},
		{"a damaged one among them", join(a, junk, b.PEM()), "", 2},
		{"a curve that is not taken", join(a, p384, b.PEM()), "", 2},
		{"one replaced", join(a, c.PEM()), "updated", 2},
		{"one added", join(a, c.PEM(), b.PEM()), "updated", 3},
		{"the issuer's own removed", join(b.PEM(), c.PEM()), "skipped", 3},
		{"still removed", join(c.PEM(), b.PEM()), "", 3},
		{"only damaged ones", junk, "skipped", 3},
		{"back", join(a, c.PEM(), b.PEM()), "", 3},
	}
	for _, tt := range steps {
		t.Run(tt.name, func(t *testing.T) {
			write(t, w.files.Anchors, tt.bundle)
			*told = nil
			_ = h.Load() // an error is told
			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}
			if diff := cmp.Diff(want, *told); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			if n := len(h.Current().Anchors); n != tt.most {
				t.Errorf("%d anchors, want %d", n, tt.most)
			}
		})
	}
}

// The gauges are of what is in use (complaint B16).
func TestExpiryFollowsTheLoad(t *testing.T) {
	w := newWorld(t)
	h, reg := w.holder()
	soon := issuetest.NewAuthority(t, "soon", nil, issuetest.Now, time.Hour, nil)
	for i, life := range []time.Duration{time.Hour, 30 * time.Hour} {
		a := issuetest.NewAuthority(t, fmt.Sprintf("v%d", i), w.root, issuetest.Now, life, nil)
		w.put(a)
		end := w.root.Cert.NotAfter
		if i == 1 {
			write(t, w.files.Anchors, slices.Concat(w.root.PEM(), soon.PEM()))
			end = soon.Cert.NotAfter
		}
		if err := h.Load(); err != nil {
			t.Fatal(err)
		}
		if err := testutil.GatherAndCompare(reg, strings.NewReader(fmt.Sprintf(`
# HELP issuer_cert_ttl_seconds Seconds until the issuer in use expires; 0 until one is loaded.
# TYPE issuer_cert_ttl_seconds gauge
issuer_cert_ttl_seconds %g
# HELP weft_identity_trust_anchors_not_after_seconds Unix time at which the first of the trust anchors in use ends; 0 until they are loaded.
# TYPE weft_identity_trust_anchors_not_after_seconds gauge
weft_identity_trust_anchors_not_after_seconds %g
# HELP weft_identity_trust_anchors Trust anchors in use.
# TYPE weft_identity_trust_anchors gauge
weft_identity_trust_anchors %d
`, life.Seconds(), float64(end.Unix()), i+1)),
			"issuer_cert_ttl_seconds", "weft_identity_trust_anchors_not_after_seconds", "weft_identity_trust_anchors"); err != nil {
			t.Error(err)
		}
	}
}
