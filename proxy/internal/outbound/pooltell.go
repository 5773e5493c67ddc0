package outbound

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// use is what a pool's endpoints are for.
type use uint32

const (
	forHTTP use = 1 << iota
	forTCP
	forTLS
)

// balancers are the families of each use.
var balancers = map[use]tell.FullBalancer{
	forHTTP: tell.OutboundBalancer("http"), forTCP: tell.OutboundBalancer("tcp"), forTLS: tell.OutboundBalancer("tls"),
}

// poolTell counts what a pool does (spec/proxy.md §15.4). Linkerd has a balancer
// for each parent and protocol; here parents and protocols share one, so there is
// no parent to name, and each protocol that uses it shows the same.
type poolTell struct {
	m        *tell.Metrics
	labels   tell.Labels
	failfast time.Duration
	uses     atomic.Uint32
	opened   atomic.Int64 // Unix seconds since when the gate is open; 0 if it is not
	shut     atomic.Int64
	stop     func()

	mu      sync.Mutex
	updates map[resolve.Op]uint64 // so far, for uses that begin later
}

func newPoolTell(m *tell.Metrics, b resolve.Backend) *poolTell {
	t := &poolTell{m: m, labels: refLabels("backend", b.Ref), updates: map[resolve.Op]uint64{}}
	t.opened.Store(time.Now().Unix())
	return t
}

// uses says what the pools of a split are for.
func (d split) uses(u use) {
	for i := range d.backends {
		if p := d.backends[i].pool; p != nil && !p.forward {
			p.tell.use(u)
		}
	}
}

// use says what the pool is for, besides what it is for already.
func (t *poolTell) use(u use) {
	if use(t.uses.Load())&u != 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if use(t.uses.Or(uint32(u)))&u != 0 {
		return
	}
	t.m.Counter(balancers[u].GateOpen, t.labels).Inc()
	t.m.Counter(balancers[u].GateShut, t.labels).Add(0)
	t.m.Counter(balancers[u].Requests, t.labels).Add(0)
	t.m.Histogram(balancers[u].Latency, t.labels)
	for op, n := range t.updates {
		t.m.Counter(balancers[u].Updates, t.labels.With("op", string(op))).Add(n)
	}
}

func (t *poolTell) each(f func(tell.FullBalancer)) {
	for u, families := range balancers {
		if use(t.uses.Load())&u != 0 {
			f(families)
		}
	}
}

// updated counts a change of the endpoints.
func (t *poolTell) updated(op resolve.Op) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.updates[op]++
	t.each(func(f tell.FullBalancer) { t.m.Counter(f.Updates, t.labels.With("op", string(op))).Inc() })
}

// waited counts a request that had to wait.
func (t *poolTell) waited(d time.Duration) {
	t.each(func(f tell.FullBalancer) {
		t.m.Counter(f.Requests, t.labels).Inc()
		t.m.Histogram(f.Latency, t.labels).Observe(d.Seconds())
	})
}

// gate counts that requests stop to wait, or that they can be sent again.
func (t *poolTell) gate(open bool) {
	now := time.Now().Unix()
	if open {
		t.opened.Store(now)
		t.shut.Store(0)
	} else {
		t.opened.Store(0)
		t.shut.Store(now)
	}
	t.each(func(f tell.FullBalancer) {
		family := f.GateShut
		if open {
			family = f.GateOpen
		}
		t.m.Counter(family, t.labels).Inc()
	})
}

// refresh sets what is read off rather than counted.
func (t *poolTell) refresh(b *balancer) {
	ready, pending := b.Counts()
	t.each(func(f tell.FullBalancer) {
		t.m.Gauge(f.Size, t.labels).Set(int64(ready + pending))
		t.m.Gauge(f.Endpoints, t.labels.With("endpoint_state", "ready")).Set(int64(ready))
		t.m.Gauge(f.Endpoints, t.labels.With("endpoint_state", "pending")).Set(int64(pending))
		t.m.Gauge(f.Length, t.labels).Set(b.Waiting())
		t.m.Gauge(f.GateOpened, t.labels).Set(t.opened.Load())
		t.m.Gauge(f.GateShutAt, t.labels).Set(t.shut.Load())
		t.m.Gauge(f.GateTimeout, t.labels).Set(int64(t.failfast.Seconds()))
	})
}

// end forgets the pool: it has no endpoints any more.
func (t *poolTell) end() {
	t.stop()
	t.each(func(f tell.FullBalancer) {
		for _, g := range []tell.Family{f.Size, f.Length, f.GateOpened, f.GateShutAt, f.GateTimeout} {
			t.m.Gauge(g, t.labels).Set(0)
		}
		for _, state := range []string{"ready", "pending"} {
			t.m.Gauge(f.Endpoints, t.labels.With("endpoint_state", state)).Set(0)
		}
	})
}
