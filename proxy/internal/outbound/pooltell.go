package outbound

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// use is what a pool's endpoints are for.
type use uint8

const (
	forHTTP use = iota
	forTCP
	forTLS
)

// balancers are the families of each use.
var balancers = [...]tell.Balancer{
	forHTTP: tell.OutboundBalancer("http"), forTCP: tell.OutboundBalancer("tcp"), forTLS: tell.OutboundBalancer("tls"),
}

// maxUsers bounds the parents that a pool names; those after them are not shown.
const maxUsers = 64

// poolTell counts what a pool does (spec/proxy.md §15.4). Linkerd has a balancer
// for each parent and protocol; here they share one, and each of them shows it.
type poolTell struct {
	m        *tell.Metrics
	labels   tell.Labels // the backend's
	failfast time.Duration
	users    atomic.Pointer[[]*user] // never changed once stored
	opened   atomic.Int64            // Unix seconds since when the gate is open; 0 if it is not
	shut     atomic.Int64
	stop     func()

	mu      sync.Mutex            // of writers of users, and of the rest
	updates map[resolve.Op]uint64 // so far, for users that begin later
}

// user is a parent that uses the pool for something.
type user struct {
	use    use
	parent resolve.Ref
	labels tell.Labels // the parent's and the backend's

	requests *tell.Counter
	latency  *tell.Histogram
	direct   atomic.Uint64 // connections that asked for an endpoint

	mu      sync.Mutex
	sources []source // of requests that asked for an endpoint
	counted uint64   // of what both say, in the families
}

// source is a counter that is there anyway: a request need not count twice.
type source struct {
	*tell.Counter
	base uint64 // what it was before
}

func newPoolTell(m *tell.Metrics, b resolve.Backend) *poolTell {
	t := &poolTell{m: m, labels: refLabels("backend", b.Ref), updates: map[resolve.Op]uint64{}}
	t.users.Store(new([]*user))
	t.opened.Store(time.Now().Unix())
	return t
}

// usedBy says who the pools of a split are for. Each backend's requests count as
// having asked its pool.
func (d split) usedBy(u use, parent resolve.Ref) {
	for i := range d.backends {
		b := &d.backends[i]
		if b.pool == nil || b.pool.forward {
			continue
		}
		if by := b.pool.tell.user(u, parent); by != nil && b.tell != nil {
			by.counts(b.tell.requests)
		}
	}
}

// user says who the pool is for, besides who it is for already; nil if those are
// too many.
func (t *poolTell) user(u use, parent resolve.Ref) *user {
	same := func(o *user) bool { return o.use == u && o.parent == parent }
	if i := slices.IndexFunc(*t.users.Load(), same); i >= 0 {
		return (*t.users.Load())[i]
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	all := *t.users.Load()
	if i := slices.IndexFunc(all, same); i >= 0 {
		return all[i]
	}
	if len(all) >= maxUsers {
		return nil
	}
	l, f := refLabels("parent", parent).And(t.labels), balancers[u]
	t.m.BindBalancer(f, l)
	for op, n := range t.updates {
		t.m.Counter(f.Updates, l.With("op", string(op))).Add(n)
	}
	by := &user{use: u, parent: parent, labels: l, requests: t.m.Counter(f.Requests, l), latency: t.m.Histogram(f.Latency, l)}
	next := append(slices.Clip(all), by)
	t.users.Store(&next)
	return by
}

// counts makes a counter of requests one of those that the user's are the sum of.
func (u *user) counts(c *tell.Counter) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !slices.ContainsFunc(u.sources, func(s source) bool { return s.Same(c) }) {
		u.sources = append(u.sources, source{c, c.Value()})
	}
}

// settle counts the requests that have come since the last time, which have not
// waited: those that have are counted by then.
func (u *user) settle() {
	u.mu.Lock()
	defer u.mu.Unlock()
	asked := u.direct.Load()
	for _, s := range u.sources {
		asked += s.Value() - min(s.base, s.Value())
	}
	if asked > u.counted {
		u.requests.Add(asked - u.counted)
		u.latency.None(asked - u.counted)
		u.counted = asked
	}
}

// waited counts a request that had to wait.
func (u *user) waited(d time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counted++
	u.requests.Inc()
	u.latency.Observe(d.Seconds())
}

// each calls f with everybody who uses the pool.
func (t *poolTell) each(f func(*user, tell.Balancer)) {
	for _, u := range *t.users.Load() {
		f(u, balancers[u.use])
	}
}

// updated counts a change of the endpoints.
func (t *poolTell) updated(op resolve.Op) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.updates[op]++
	t.each(func(u *user, f tell.Balancer) { t.m.Counter(f.Updates, u.labels.With("op", string(op))).Inc() })
}

// waited counts a request that had to wait. Whose it is the balancer does not know.
func (t *poolTell) waited(d time.Duration) {
	t.each(func(u *user, _ tell.Balancer) { u.waited(d) })
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
	t.each(func(u *user, f tell.Balancer) {
		family := f.GateShut
		if open {
			family = f.GateOpen
		}
		t.m.Counter(family, u.labels).Inc()
	})
}

// refresh sets what is read off rather than counted.
func (t *poolTell) refresh(b *balancer) {
	ready, pending := b.Counts()
	t.each(func(u *user, f tell.Balancer) {
		u.settle()
		t.m.Gauge(f.Size, u.labels).Set(int64(ready + pending))
		t.m.Gauge(f.Endpoints, u.labels.With("endpoint_state", "ready")).Set(int64(ready))
		t.m.Gauge(f.Endpoints, u.labels.With("endpoint_state", "pending")).Set(int64(pending))
		t.m.Gauge(f.Length, u.labels).Set(b.Waiting())
		t.m.Gauge(f.GateOpened, u.labels).Set(t.opened.Load())
		t.m.Gauge(f.GateShutAt, u.labels).Set(t.shut.Load())
		t.m.Gauge(f.GateTimeout, u.labels).Set(int64(t.failfast.Seconds()))
	})
}

// end forgets the pool: it has no endpoints any more.
func (t *poolTell) end() {
	t.stop()
	t.each(func(u *user, f tell.Balancer) {
		u.settle()
		for _, g := range []tell.Family{f.Size, f.Length, f.GateOpened, f.GateShutAt, f.GateTimeout} {
			t.m.Gauge(g, u.labels).Set(0)
		}
		for _, state := range []string{"ready", "pending"} {
			t.m.Gauge(f.Endpoints, u.labels.With("endpoint_state", state)).Set(0)
		}
	})
}
