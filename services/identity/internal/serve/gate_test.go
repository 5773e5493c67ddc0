package serve

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/identity"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/services/identity/internal/events"
	"github.com/weftmesh/weft/services/identity/internal/issue"
	"github.com/weftmesh/weft/services/identity/internal/issue/issuetest"
)

// proxyPatience is how long a proxy waits for an answer (spec/proxy.md §12.2).
const proxyPatience = 30 * time.Second

type always struct{ issuer *issue.Issuer }

func (a always) Current() *issue.Issuer { return a.issuer }

// mirror answers with the user that the token names.
type mirror struct{ calls atomic.Int64 }

func (m *mirror) Review(_ context.Context, token []byte) (string, error) {
	m.calls.Add(1)
	return string(token), nil
}

func hint(t *testing.T, err error) time.Duration {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	t.Fatalf("no hint in %v", err)
	return 0
}

// 2,000 proxies start at once, of one account or of a thousand: each gets its
// certificate at the first try, before it loses patience, and the API server
// is never asked faster than the rate.
func TestTwoThousandProxiesStartAtOnce(t *testing.T) {
	const proxies = 2000
	der := make(map[string][]byte)
	for _, accounts := range []int{1, 1000} {
		for i := range accounts {
			name := fmt.Sprintf("a%d.shop.serviceaccount.identity.linkerd.cluster.local", i)
			if der[name] == nil {
				der[name] = issuetest.Request(t, issuetest.Plain(name), nil)
			}
		}
		t.Run(fmt.Sprintf("%d accounts", accounts), func(t *testing.T) {
			issuer := issuetest.Issuer(t, 72*time.Hour)
			synctest.Test(t, func(t *testing.T) {
				who := &mirror{}
				s := New(Config{
					Domain: issue.Domain{ControllerNamespace: "linkerd", TrustDomain: "cluster.local"},
					Tokens: who, Issuers: always{issuer}, Now: func() time.Time { return issuetest.Now },
				}, prometheus.NewPedanticRegistry())
				began := time.Now()
				var all sync.WaitGroup
				for i := range proxies {
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), proxyPatience)
						defer cancel()
						a := fmt.Sprintf("a%d", i%accounts)
						name := a + ".shop.serviceaccount.identity.linkerd.cluster.local"
						if _, err := s.Certify(ctx, &pb.CertifyRequest{
							Identity: name, Token: []byte("system:serviceaccount:shop:" + a), CertificateSigningRequest: der[name],
						}); err != nil {
							t.Errorf("proxy %d: %v", i, err)
						}
					})
				}
				all.Wait()
				if n := who.calls.Load(); n != proxies {
					t.Errorf("%d reviews, want %d", n, proxies)
				}
				l := Limits{}.WithDefaults()
				least := time.Duration(proxies-l.Burst) * time.Second / time.Duration(l.Rate)
				if took := time.Since(began); took < least || took > proxyPatience {
					t.Errorf("took %s, want %s to %s", took, least, proxyPatience)
				}
			})
		})
	}
}

// One account's flood is told to come later and leaves the others alone; what
// is too much for the whole service is Unavailable, so that a proxy tries
// another replica. No refusal costs the turn of anybody else.
func TestGateRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(Limits{Rate: 100, Burst: 100, IdentityRate: 1, IdentityBurst: 5, Wait: 2 * time.Second}, prometheus.NewPedanticRegistry())
		var all sync.WaitGroup
		var ok, later atomic.Int64
		for range 50 {
			all.Go(func() {
				switch err := g.enter(t.Context(), "noisy"); {
				case err == nil:
					ok.Add(1)
				case status.Code(err) == codes.ResourceExhausted:
					later.Add(1)
					// A reservation that is about to be given back makes others' look later.
					if d := hint(t, err); d < time.Second || d > 2*time.Minute {
						t.Errorf("hint = %s", d)
					}
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if ok.Load() != 7 || later.Load() != 43 { // 5 at once, 2 more in the 2 s
			t.Errorf("%d let in, %d refused", ok.Load(), later.Load())
		}
		began := time.Now()
		if err := g.enter(t.Context(), "quiet"); err != nil || time.Since(began) > 0 {
			t.Errorf("another identity: %v after %s", err, time.Since(began))
		}

		g = newGate(Limits{Rate: 1, Burst: 1, Wait: time.Second}, prometheus.NewPedanticRegistry())
		codesSeen := map[codes.Code]int{}
		var mu sync.Mutex
		for i := range 10 {
			all.Go(func() {
				err := g.enter(t.Context(), fmt.Sprint(i))
				mu.Lock()
				defer mu.Unlock()
				codesSeen[status.Code(err)]++
				if err != nil {
					hint(t, err)
				}
			})
		}
		all.Wait()
		if codesSeen[codes.OK] != 2 || codesSeen[codes.Unavailable] != 8 {
			t.Errorf("codes = %v", codesSeen)
		}
		if n := testutil.ToFloat64(g.refused.WithLabelValues("all")); n != 8 {
			t.Errorf("refused = %v", n)
		}
	})
}

// A caller that leaves is told so and waits no longer.
func TestGateForgetsThoseWhoLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(Limits{Rate: 1, Burst: 1, Wait: time.Minute}, prometheus.NewPedanticRegistry())
		if err := g.enter(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if code := status.Code(g.enter(ctx, "a")); code != codes.Canceled {
					t.Errorf("code = %v", code)
				}
			})
		}
		synctest.Wait()
		if n := testutil.ToFloat64(g.waiting); n != 20 {
			t.Errorf("waiting = %v", n)
		}
		cancel()
		all.Wait()
		if n := testutil.ToFloat64(g.waiting); n != 0 {
			t.Errorf("waiting = %v after all left", n)
		}
		// Turns are given back as far as x/time/rate can: the next one waits no
		// longer than it would have behind those who left.
		began := time.Now()
		if err := g.enter(t.Context(), "a"); err != nil || time.Since(began) > 20*time.Second {
			t.Errorf("the next one: %v after %s", err, time.Since(began))
		}
	})
}

// Names are the caller's to choose: they must not fill the memory.
func TestGateRemembersOnlySoMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(Limits{IdentityRate: 1, IdentityBurst: 1}, prometheus.NewPedanticRegistry())
		now := time.Now()
		for i := range maxIdentities + 10 {
			g.of(fmt.Sprint(i), now).AllowN(now, 1)
		}
		if len(g.by) != maxIdentities || g.of("new", now) != g.others {
			t.Errorf("%d identities remembered, want %d", len(g.by), maxIdentities)
		}
		time.Sleep(time.Second) //nolint:forbidigo // virtual time: their buckets are full again
		if g.of("new", time.Now()) == g.others || len(g.by) != 1 {
			t.Errorf("%d identities remembered after a rest, want the new one", len(g.by))
		}
	})
}

func TestLimitsCheck(t *testing.T) {
	for _, l := range []Limits{{Rate: -1}, {Burst: -1}, {IdentityRate: -1}, {IdentityBurst: -1}, {Wait: -1}, {Wait: time.Hour}} {
		if l.Check() == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
	if err := (Limits{}).Check(); err != nil {
		t.Error(err)
	}
}

// What people are told: each certificate on its account, a bad issuer on the
// Deployment, and never the token.
func TestEvents(t *testing.T) {
	const name = "kiln.pottery.serviceaccount.identity.linkerd.cluster.local"
	for _, tt := range []struct {
		life time.Duration
		want events.Event
	}{
		{time.Hour, events.Event{
			About: events.Object{APIVersion: "v1", Kind: "ServiceAccount", Namespace: "pottery", Name: "kiln"}, Reason: "IssuedLeafCertificate", Routine: true,
		}},
		{-time.Minute, events.Event{
			About: events.Object{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "linkerd", Name: "linkerd-identity"}, Reason: "IssuerValidationFailed", Warning: true,
		}},
	} {
		var got []events.Event
		s := New(Config{
			Domain: issue.Domain{ControllerNamespace: "linkerd", TrustDomain: "cluster.local"},
			Tokens: &mirror{}, Issuers: always{issuetest.Issuer(t, tt.life)}, Now: func() time.Time { return issuetest.Now },
			Record: func(e events.Event) { got = append(got, e) },
		}, prometheus.NewPedanticRegistry())
		_, _ = s.Certify(t.Context(), &pb.CertifyRequest{
			Identity: name, Token: []byte("system:serviceaccount:pottery:kiln"),
			CertificateSigningRequest: issuetest.Request(t, issuetest.Plain(name), nil),
		})
		if len(got) != 1 {
			t.Fatalf("%d events, want one", len(got))
		}
		if got[0].Message == "" {
			t.Error("no message")
		}
		got[0].Message = ""
		if got[0] != tt.want {
			t.Errorf("event = %+v, want %+v", got[0], tt.want)
		}
	}
}
