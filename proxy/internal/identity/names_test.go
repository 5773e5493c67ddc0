package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

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
		{"as the identity service makes it", san(t, tagDNS, "a.ns.example", tagURI, "spiffe://td/ns/ns/sa/a"), []string{"a.ns.example", "spiffe://td/ns/ns/sa/a"}},
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

// A certificate is renewed in time for what ends first: what the service says, or any
// of the chain.
func TestEarliest(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	chain := []*x509.Certificate{{NotAfter: at(20)}, {NotAfter: at(10)}, {NotAfter: at(30)}}
	for said, want := range map[int64]int64{5: 5, 10: 10, 100: 10} {
		if got := earliest(at(said), chain); !got.Equal(at(want)) {
			t.Errorf("earliest(%d) = %v, want %v", said, got.Unix(), want)
		}
	}
	if got := earliest(at(7), nil); !got.Equal(at(7)) {
		t.Errorf("without a chain: %v", got)
	}
}

func TestDelay(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	none, day := time.Time{}, now.Add(24*time.Hour)
	busy := func(d time.Duration) error {
		s, err := status.New(codes.ResourceExhausted, "later").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Errorf("asking for a certificate: %w", s.Err())
	}
	down := errors.New("down")
	for _, tt := range []struct {
		name     string
		expires  time.Time
		failures int
		err      error
		jitter   float64
		want     time.Duration
	}{
		{"fresh", now.Add(100 * time.Second), 0, nil, 0, 70 * time.Second},
		{"at most jittered", now.Add(1000 * time.Second), 0, nil, 1, 665 * time.Second},
		{"at most the longest", now.Add(48 * time.Hour), 0, nil, 0, time.Hour},
		{"at least the shortest", now.Add(time.Second), 0, nil, 0, 10 * time.Second},
		{"the clock stepped", now.Add(-time.Hour), 0, nil, 0, 10 * time.Second},
		{"no certificate yet", none, 1, down, 0, 10 * time.Second},
		{"still none", none, 50, down, 0, 10 * time.Second},
		{"none, spread", none, 1, down, 1, 15 * time.Second},
		{"none, and the service is busy", none, 1, busy(2 * time.Second), 1, 2 * time.Second},
		{"a hint of nothing", none, 1, busy(0), 0, hintLeast},
		{"a hint of for ever", none, 1, busy(24 * time.Hour), 0, hintMost},
		{"first failure", day, 1, down, 0, 10 * time.Second},
		{"spread", day, 1, down, 1, 15 * time.Second},
		{"third failure", day, 3, down, 0, 40 * time.Second},
		{"many failures", day, 1000, down, 0, retryMost},
		{"busy", day, 1, busy(30 * time.Second), 0, 30 * time.Second},
		{"busy, but not that long", day, 3, busy(time.Second), 0, 40 * time.Second},
		{"no later than the end nears", now.Add(100 * time.Second), 8, down, 0, 70 * time.Second},
		{"expired", now.Add(-time.Hour), 8, down, 0, 10 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &Local{
				cfg:    config.Identity{MinRefresh: 10 * time.Second, MaxRefresh: time.Hour},
				jitter: func() float64 { return tt.jitter },
			}
			if !tt.expires.IsZero() {
				l.expires.Store(&tt.expires)
			}
			if got := l.delay(now, tt.failures, tt.err); got != tt.want {
				t.Errorf("delay() = %v, want %v", got, tt.want)
			}
		})
	}
}

func FuzzParseAnchors(f *testing.F) {
	f.Add("# none\r\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := ParseAnchors(text); len(got) == 0 && err == nil {
			t.Error("no anchors and no error")
		}
	})
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
