package inbound

import (
	"net/http"
	"sync"
	"time"

	"github.com/weftmesh/weft/proxy/internal/allow"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// maxBuckets bounds the clients that are counted apart; those after it share one
// bucket.
const maxBuckets = 10000

// limiter counts requests against a server's limits. A burst may be as large as
// a second's worth.
type limiter struct {
	limits *allow.Limits

	mu      sync.Mutex
	total   bucket
	each    []bucket // of the overrides
	clients map[string]*bucket
	rest    bucket
}

func newLimiter(l *allow.Limits) *limiter {
	return &limiter{limits: l, each: make([]bucket, len(l.Overrides)), clients: make(map[string]*bucket)}
}

// take counts one request, or names the scope of the limit it exceeds.
func (l *limiter) take(id string, now time.Time) (scope string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.total.take(l.limits.Total, now) {
		return "total", false
	}
	limit, override := l.limits.Of(id)
	b := (*bucket)(nil)
	switch {
	case limit == 0:
		return "", true
	case override >= 0:
		b = &l.each[override]
	default:
		b = l.client(id, now)
	}
	return "identity", b.take(limit, now)
}

func (l *limiter) client(id string, now time.Time) *bucket {
	if b := l.clients[id]; b != nil {
		return b
	}
	if len(l.clients) >= maxBuckets {
		for name, b := range l.clients {
			if !b.full.After(now) { // as good as new
				delete(l.clients, name)
			}
		}
	}
	if len(l.clients) >= maxBuckets {
		return &l.rest
	}
	b := new(bucket)
	l.clients[id] = b
	return b
}

// A bucket is the generic cell rate algorithm: full is when it will have
// drained. A clock that steps back only makes it drain later.
type bucket struct{ full time.Time }

func (b *bucket) take(perSecond uint32, now time.Time) bool {
	if perSecond == 0 {
		return true
	}
	cell := time.Second / time.Duration(perSecond)
	full := b.full
	if full.Before(now) {
		full = now
	}
	if full.Sub(now) > time.Second-cell {
		return false
	}
	b.full = full.Add(cell)
	return true
}

// rate applies the server's limits to requests that are allowed.
func (in *Inbound) rate(next handler) handler {
	return func(x *exchange) {
		l := x.session.port.limiter.Load()
		if l == nil {
			next(x)
			return
		}
		scope, ok := l.take(x.session.client.ID, time.Now())
		if ok {
			next(x)
			return
		}
		ref := l.limits.Ref
		in.decided(tell.InboundHTTPRateLimit, x.session, allow.Verdict{Server: x.verdict.Server}, tell.Labels{
			{Name: "ratelimit_group", Value: ref.Group},
			{Name: "ratelimit_kind", Value: ref.Kind},
			{Name: "ratelimit_name", Value: ref.Name},
			{Name: "ratelimit_scope", Value: scope},
		}...)
		in.fail(x, failure{http.StatusTooManyRequests, codeExhausted, "rate limit exceeded", false, ""})
	}
}
