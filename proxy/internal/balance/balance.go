// Package balance chooses an endpoint for each request: the less loaded of two
// taken at random, load being a peak-sensitive estimate of response time times
// the requests in flight (spec/proxy.md §7).
//
// Choosing takes no lock: it reads a snapshot that Set replaces. Members that stay
// in the set keep their client and what was learnt of them. Everything that
// decides gets the time and the dice as arguments; only Acquire waits.
package balance

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftmesh/weft/proxy/internal/spare"
)

// Config is how a balancer works. Same, Open and Close must be set.
type Config[E, C any] struct {
	Same   func(a, b E) bool     // a client of a can serve b
	Open   func(*Member[E, C]) C // makes a client; it need not connect yet
	Close  func(C)               // takes no new work; what is in flight ends by itself
	Clock  func() time.Duration  // since any start; nil is the process's clock
	Dice   func(n int) int       // in [0, n); nil is math/rand
	Chance func() float64        // in [0, 1); nil is math/rand

	DefaultRTT, Decay time.Duration // 0 means 30 ms, 10 s
	// Penalty is what a failure counts as at least, MaxRetryAfter what the answer may
	// ask for at most; 0 means that failures cost what they took.
	Penalty, MaxRetryAfter time.Duration
	// SlowStart is how long an endpoint that joins others gets less than its share,
	// from a tenth up; 0 means that it gets all at once.
	SlowStart time.Duration
	Connect   Backoff // of endpoints that cannot be connected to
	Accrual   Accrual
	Failfast  time.Duration // how long requests wait for an endpoint; 0 means 3 s
	Capacity  int           // how many may wait; 0 means 10000
	// Waited is told how long a request has waited for an endpoint, if it had to;
	// Gate, when requests stop waiting (false), and when there is an endpoint again
	// (true). Either may be nil.
	Waited func(time.Duration)
	Gate   func(open bool)
}

// processClock is the process's clock: monotonic, since the start.
func processClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// Errors of Acquire.
var (
	ErrFailfast = errors.New("no endpoint became available in time") // 504
	ErrFull     = errors.New("too many requests wait for an endpoint")
	ErrClosed   = errors.New("the balancer is closed")
)

// A Balancer holds the endpoints of one backend.
type Balancer[E, C any] struct {
	cfg Config[E, C]
	now atomic.Pointer[[]*Member[E, C]]

	mu      sync.Mutex    // of Set, Close and bell
	bell    chan struct{} // closed when a waiting request should look again
	closed  error
	waiting atomic.Int64
	spare   spare.Pool[Lease[E, C]]
	shut    atomic.Bool // a request has waited in vain: the next do not wait
}

// New returns a balancer without endpoints.
func New[E, C any](cfg Config[E, C]) *Balancer[E, C] {
	if cfg.Clock == nil {
		cfg.Clock = processClock()
	}
	if cfg.Dice == nil {
		cfg.Dice = rand.IntN
	}
	if cfg.Chance == nil {
		cfg.Chance = rand.Float64
	}
	if cfg.DefaultRTT <= 0 {
		cfg.DefaultRTT = 30 * time.Millisecond
	}
	if cfg.Decay <= 0 {
		cfg.Decay = 10 * time.Second
	}
	if cfg.Connect.Min <= 0 {
		cfg.Connect = Backoff{Min: 100 * time.Millisecond, Max: time.Minute, Jitter: 0.1}
	}
	if cfg.Failfast <= 0 {
		cfg.Failfast = 3 * time.Second
	}
	if cfg.Capacity <= 0 {
		cfg.Capacity = 10000
	}
	b := &Balancer[E, C]{cfg: cfg, bell: make(chan struct{})}
	b.spare.Small = true
	b.now.Store(&[]*Member[E, C]{})
	return b
}

// Set replaces the endpoints. Members whose endpoint is the Same stay as they are;
// the clients of those that leave are closed.
func (b *Balancer[E, C]) Set(endpoints []E) {
	b.mu.Lock()
	old := *b.now.Load()
	if b.closed != nil {
		b.mu.Unlock()
		return
	}
	taken := make([]bool, len(old))
	next := make([]*Member[E, C], 0, len(endpoints))
	joins := len(old) > 0
	at := 0 // both are mostly in the same order: look from where the last was found
	for _, e := range endpoints {
		var m *Member[E, C]
		for n := range old {
			i := (at + n) % len(old)
			if !taken[i] && b.cfg.Same(old[i].Endpoint, e) {
				m, taken[i], at = old[i], true, i+1
				break
			}
		}
		if m == nil {
			m = &Member[E, C]{Endpoint: e, b: b}
			m.load.seed(b.cfg.Clock(), b.cfg.DefaultRTT, b.cfg.Decay)
			if joins && b.cfg.SlowStart > 0 {
				m.load.warm(b.cfg.Clock(), b.cfg.SlowStart)
			}
			m.Client = b.cfg.Open(m)
		}
		next = append(next, m)
	}
	b.now.Store(&next)
	b.mu.Unlock()
	b.wake()
	for i, m := range old {
		if !taken[i] {
			b.cfg.Close(m.Client)
		}
	}
}

// Close ends all waiting with why (ErrClosed if nil) and lets the clients go.
func (b *Balancer[E, C]) Close(why error) {
	b.Set(nil)
	b.mu.Lock()
	if b.closed == nil {
		b.closed = why
		if why == nil {
			b.closed = ErrClosed
		}
	}
	b.mu.Unlock()
	b.wake()
}

// Members is the set as it is now; it must not be changed.
func (b *Balancer[E, C]) Members() []*Member[E, C] { return *b.now.Load() }

// Available reports whether a request would be sent, or could at least wait.
func (b *Balancer[E, C]) Available() bool {
	if !b.shut.Load() {
		return true
	}
	now := b.cfg.Clock()
	for _, m := range b.Members() {
		if m.ready(now) {
			return true
		}
	}
	return false
}

// Ready reports whether a member other than this one would take a request now.
func (b *Balancer[E, C]) Ready(besides *Member[E, C]) bool {
	now := b.cfg.Clock()
	for _, m := range b.Members() {
		if m != besides && m.ready(now) {
			return true
		}
	}
	return false
}

// Hope reports whether a request may yet find a member other than this one: one
// that is ready, or one that is left alone for another reason than that its
// application is gone.
func (b *Balancer[E, C]) Hope(besides *Member[E, C]) bool {
	now := b.cfg.Clock()
	for _, m := range b.Members() {
		if m != besides && (!m.gone.Load() || m.ready(now)) {
			return true
		}
	}
	return false
}

// Counts is how many members take requests now, and how many do not.
func (b *Balancer[E, C]) Counts() (ready, pending int) {
	now := b.cfg.Clock()
	for _, m := range b.Members() {
		if m.ready(now) {
			ready++
		} else {
			pending++
		}
	}
	return ready, pending
}
