package serve

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/pause"
)

// Limits bound how fast requests get to the check of their token. A request
// over a rate waits its turn; one whose turn is too far off is told when to
// come again. The defaults let 2,000 proxies start at once, of one account or
// of many: the last of them waits 18 s.
type Limits struct {
	Rate          int           `help:"requests a second; 0 means 100"`
	Burst         int           `help:"requests at once above the rate; 0 means 200"`
	IdentityRate  int           `help:"requests a second for one identity; 0 means 50"`
	IdentityBurst int           `help:"requests at once for one identity; 0 means 1000"`
	Wait          time.Duration `help:"longest that a request waits for its turn; 0 means 20s"`
}

// WithDefaults is l with the defaults in place of zeros.
func (l Limits) WithDefaults() Limits {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&l.Rate, 100)
	set(&l.Burst, 200)
	set(&l.IdentityRate, 50)
	set(&l.IdentityBurst, 1000)
	if l.Wait == 0 {
		l.Wait = 20 * time.Second // below the 30 s that a proxy waits
	}
	return l
}

// Check judges the settings.
func (l Limits) Check() error {
	for _, f := range []struct {
		name  string
		value int
	}{{"Rate", l.Rate}, {"Burst", l.Burst}, {"IdentityRate", l.IdentityRate}, {"IdentityBurst", l.IdentityBurst}} {
		if f.value < 0 {
			return conf.Bad(f.name, "%d is below zero", f.value)
		}
	}
	if l.Wait < 0 || l.Wait > 5*time.Minute {
		return conf.Bad("Wait", "%s is not between 0 and 5m", l.Wait)
	}
	return nil
}

// maxIdentities is how many identities are told apart. Those that come when
// there are more share one bound; a cluster has some thousands of accounts.
const maxIdentities = 10_000

// gate makes requests wait.
type gate struct {
	limits  Limits
	all     *rate.Limiter
	waiting prometheus.Gauge
	refused *prometheus.CounterVec

	mu     sync.Mutex
	by     map[string]*rate.Limiter
	others *rate.Limiter // of the identities for which there was no room
}

func newGate(l Limits, reg prometheus.Registerer) *gate {
	l = l.WithDefaults()
	g := &gate{
		limits: l, all: rate.NewLimiter(rate.Limit(l.Rate), l.Burst), by: make(map[string]*rate.Limiter),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weft_identity_waiting", Help: "Requests that wait for their turn.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_identity_limited_total",
			Help: "Requests told to come again later, by the bound they met: identity or all.",
		}, []string{"bound"}),
	}
	g.others = g.one()
	reg.MustRegister(g.waiting, g.refused)
	return g
}

func (g *gate) one() *rate.Limiter {
	return rate.NewLimiter(rate.Limit(g.limits.IdentityRate), g.limits.IdentityBurst)
}

// of is the limiter of an identity. A full bucket is as good as a new one, so
// those can be forgotten when there is no room.
func (g *gate) of(identity string, now time.Time) *rate.Limiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l, ok := g.by[identity]; ok {
		return l
	}
	if len(g.by) >= maxIdentities {
		for name, l := range g.by {
			if l.TokensAt(now) >= float64(g.limits.IdentityBurst) {
				delete(g.by, name)
			}
		}
		if len(g.by) >= maxIdentities {
			return g.others
		}
	}
	l := g.one()
	g.by[identity] = l
	return l
}

// enter waits for a request's turn. Its error is for the caller: with a hint
// when to come again (google.rpc.RetryInfo), spread so that those who are
// refused together don't come back together.
func (g *gate) enter(ctx context.Context, identity string) error {
	now := time.Now()
	own := g.of(identity, now).ReserveN(now, 1)
	if d := own.DelayFrom(now); d > g.limits.Wait {
		own.CancelAt(now)
		g.refused.WithLabelValues("identity").Inc()
		return later(codes.ResourceExhausted, "too many requests for this identity", d-g.limits.Wait)
	}
	all := g.all.ReserveN(now, 1)
	wait := max(own.DelayFrom(now), all.DelayFrom(now))
	if wait > g.limits.Wait {
		all.CancelAt(now)
		own.CancelAt(now)
		g.refused.WithLabelValues("all").Inc()
		return later(codes.Unavailable, "too many requests", wait-g.limits.Wait)
	}
	if wait <= 0 {
		return nil
	}
	g.waiting.Inc()
	defer g.waiting.Dec()
	if !pause.For(ctx, wait) {
		all.Cancel()
		own.Cancel()
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// later is a refusal with a hint of one to two seconds at least.
func later(code codes.Code, text string, over time.Duration) error {
	hint := over + time.Second + rand.N(over+time.Second) //nolint:gosec // spreads, hides nothing
	s := status.New(code, text+": come again later")
	if with, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(hint)}); err == nil {
		s = with
	}
	return s.Err()
}
