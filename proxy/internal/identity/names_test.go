package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/proxy/internal/config"
)

// san makes a certificate's extension of raw names: tag and content.
func san(t testing.TB, pairs ...any) *x509.Certificate {
	t.Helper()
	var all []asn1.RawValue
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: pairs[i].(int), Bytes: []byte(pairs[i+1].(string))})
	}
	der, err := asn1.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return &x509.Certificate{Extensions: []pkix.Extension{{Id: oidSubjectAltName, Value: der}}}
}

func TestNames(t *testing.T) {
	const mail, ip = 1, 7
	for _, tt := range []struct {
		name string
		cert *x509.Certificate
		want []string
	}{
		{"none", &x509.Certificate{Subject: pkix.Name{CommonName: "cn.example"}}, nil},
		{"order is kept", san(t, tagURI, "spiffe://td/a", tagDNS, "b.example"), []string{"spiffe://td/a", "b.example"}},
		{"others are skipped", san(t, mail, "a@b.c", ip, "\x7f\x00\x00\x01", tagDNS, "b.example"), []string{"b.example"}},
		{"case folds", san(t, tagDNS, "Web.Example"), []string{"web.example"}},
		{"trailing dot", san(t, tagDNS, "b.example.", tagDNS, "c.example"), []string{"c.example"}},
		{"not names", san(t, tagDNS, "", tagDNS, "*.example", tagDNS, "a b", tagURI, "nonsense"), nil},
		{"not a sequence", &x509.Certificate{Extensions: []pkix.Extension{{Id: oidSubjectAltName, Value: []byte{4, 1, 0}}}}, nil},
	} {
		if diff := cmp.Diff(tt.want, names(tt.cert)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestDelay(t *testing.T) {
	l := &Local{cfg: config.Identity{MinRefresh: 10 * time.Second, MaxRefresh: time.Hour}, jitter: func() float64 { return 0 }}
	now := time.Unix(1000, 0)
	if got := l.delay(now); got != 10*time.Second {
		t.Errorf("without a certificate: %v", got)
	}
	for left, want := range map[time.Duration]time.Duration{
		100 * time.Second: 70 * time.Second, 48 * time.Hour: time.Hour, time.Second: 10 * time.Second, -time.Hour: 10 * time.Second,
	} {
		if got := l.until(now, now.Add(left)); got != want {
			t.Errorf("%v left: %v, want %v", left, got, want)
		}
	}
	l.jitter = func() float64 { return 1 }
	if got := l.until(now, now.Add(1000*time.Second)); got != 665*time.Second {
		t.Errorf("at most jittered: %v", got)
	}
}

func FuzzNames(f *testing.F) {
	f.Add(san(f, tagURI, "spiffe://td/a", tagDNS, "b.example").Extensions[0].Value)
	f.Fuzz(func(t *testing.T, der []byte) {
		for _, name := range names(&x509.Certificate{Extensions: []pkix.Extension{{Id: oidSubjectAltName, Value: der}}}) {
			if !isDNS(name) && !isURI(name) {
				t.Errorf("name %q", name)
			}
		}
	})
}
