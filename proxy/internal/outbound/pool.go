package outbound

import (
	"context"
	"fmt"
	"time"

	"github.com/weftmesh/weft/proxy/internal/balance"
	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/endpoint"
	"github.com/weftmesh/weft/proxy/internal/resolve"
)

type (
	balancer = balance.Balancer[resolve.Endpoint, *endpoint.Endpoint]
	member   = balance.Member[resolve.Endpoint, *endpoint.Endpoint]
	lease    = balance.Lease[resolve.Endpoint, *endpoint.Endpoint]
)

// pool is the endpoints of one backend: those of a name, kept up to date, or one
// address.
type pool struct {
	*balancer
	forward  bool // one address: there is no other to go to, so nobody waits
	failfast time.Duration
	penalty  time.Duration // of an answer that counts against its endpoint; 0 is none
	tell     *poolTell
	cancel   context.CancelFunc
}

// slowStart is how long an endpoint that joins others has less than its share:
// what has just started has cold caches and connections to make.
const slowStart = 10 * time.Second

// maxPools bounds the backends that are open.
const maxPools = 10000

// pool returns the pool of a backend; backends that are equal share one, whether
// for requests or for bytes unless their queues differ.
func (o *Outbound) pool(b resolve.Backend, a resolve.Accrual, q config.Queue) (*pool, func(), error) {
	if b.Forward == nil && b.Path == "" {
		return nil, func() {}, nil
	}
	if b.Forward != nil {
		a = resolve.Accrual{} // there is no other address to leave this one for
	}
	key := b.Key(a)
	if q != o.deps.Config.Outbound.HTTPQueue {
		key = "tcp " + key
	}
	return o.pools.take(key, func() *pool { return o.open(b, a, q) })
}

func (o *Outbound) open(b resolve.Backend, a resolve.Accrual, q config.Queue) *pool {
	cfg := o.deps.Config.Outbound
	told := newPoolTell(o.deps.Metrics, b)
	p := &pool{forward: b.Forward != nil, failfast: q.Failfast, penalty: b.Load.Penalty, tell: told}
	p.balancer = balance.New(balance.Config[resolve.Endpoint, *endpoint.Endpoint]{
		Same:       resolve.Endpoint.Equal,
		Open:       func(m *member) *endpoint.Endpoint { return endpoint.New(m.Endpoint, &o.endpoints, m) },
		Close:      (*endpoint.Endpoint).Close,
		Clock:      o.since,
		DefaultRTT: b.Load.DefaultRTT, Decay: b.Load.Decay, Penalty: b.Load.Penalty, MaxRetryAfter: b.Load.MaxRetryAfter,
		SlowStart: slowStart,
		Connect:   balance.Backoff(cfg.Backoff),
		Accrual: balance.Accrual{
			Unified: a.Unified, Consecutive: a.Consecutive, SuccessRate: a.SuccessRate, Window: a.Window, MinRequests: a.MinRequests,
			Backoff: balance.Backoff(a.Backoff),
		},
		Failfast: q.Failfast, Capacity: q.Capacity,
		Waited: told.waited, Gate: told.gate,
	})
	if p.failfast <= 0 {
		p.failfast = 3 * time.Second
	}
	told.failfast = p.failfast
	told.stop = func() {}
	if b.Forward == nil {
		told.stop = o.deps.Metrics.Before(func() { told.refresh(p.balancer) })
	}
	ctx, cancel := context.WithCancel(o.life)
	p.cancel = cancel
	if b.Forward != nil {
		p.Set([]resolve.Endpoint{*b.Forward})
		return p
	}
	go o.feed(ctx, b, p)
	return p
}

// feed keeps the pool's endpoints as discovery says they are.
func (o *Outbound) feed(ctx context.Context, b resolve.Backend, p *pool) {
	err := o.resolver.Endpoints(ctx, b.Path, func(op resolve.Op, endpoints []resolve.Endpoint) {
		p.tell.updated(op) // before a request can go there
		p.Set(endpoints)
	})
	if ctx.Err() == nil {
		o.log.Warn("endpoints refused for good", "backend", b.Path, "error", err)
		p.Close(fmt.Errorf("%w: %w", errTerminal, err))
	}
}

func (o *Outbound) closePool(p *pool) {
	p.cancel()
	p.tell.end()
	p.Close(nil)
}
