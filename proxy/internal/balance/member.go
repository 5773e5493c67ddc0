package balance

import (
	"sync/atomic"
	"time"
)

// A Member is an endpoint in the set, what is known of it, and its client.
type Member[E, C any] struct {
	Endpoint E
	Client   C

	b       *Balancer[E, C]
	load    Load
	pending atomic.Int64
	reach   gate        // shut while it cannot be connected to
	gone    atomic.Bool // its proxy says that there is no application behind it
	answers breaker
}

func (m *Member[E, C]) ready(now time.Duration) bool {
	return m.reach.ready(now) && m.answers.gate.ready(now)
}

// Up tells that a connection to the endpoint has been made. It says nothing of an
// application that is gone: its proxy, which says so, was there all the time.
func (m *Member[E, C]) Up() {
	if !m.gone.Load() && m.reach.ok() {
		m.b.wake()
	}
}

// Down tells that the endpoint could not be connected to: it is left alone for a
// while, longer each time.
func (m *Member[E, C]) Down() {
	m.reach.fail(m.b.cfg.Clock(), m.b.cfg.Connect, m.b.cfg.Chance())
	m.b.wake()
}

// Gone tells that the endpoint's proxy is there and its application is not: it is
// left alone as with Down, until an answer proves otherwise.
func (m *Member[E, C]) Gone() {
	m.gone.Store(true)
	m.Down()
}

// Pending is how many requests are in flight.
func (m *Member[E, C]) Pending() int64 { return m.pending.Load() }

// lease takes a place at the member, unless its gates have shut meanwhile.
func (m *Member[E, C]) lease(now time.Duration) (*Lease[E, C], bool) {
	probeReach, ok := m.reach.enter(now)
	if !ok {
		return nil, false
	}
	probeAnswers, ok := m.answers.gate.enter(now)
	if !ok {
		if probeReach {
			m.reach.release()
		}
		return nil, false
	}
	m.pending.Add(1)
	l := m.b.spare.Get()
	l.Member, l.probeReach, l.probeAnswers = m, probeReach, probeAnswers
	l.began.Store(int64(now))
	return l, true
}

// Free gives the lease's memory back after End. Nobody may use it any more; who
// cannot be sure leaves it to the collector.
func (l *Lease[E, C]) Free() {
	b := l.b
	*l = Lease[E, C]{}
	b.spare.Put(l)
}

// A Lease is one request's use of a member. End must be called once; calling it
// again does nothing.
type Lease[E, C any] struct {
	*Member[E, C]
	began                    atomic.Int64 // as a time.Duration of the clock
	sampled, ended           atomic.Bool
	probeReach, probeAnswers bool
}

// Began is when the place was taken, by the balancer's clock, and later when there
// was a connection.
func (l *Lease[E, C]) Began() time.Duration { return time.Duration(l.began.Load()) }

// Sending tells that there is a connection: response time counts from here, or
// an endpoint would look slow for the one request that had to connect.
func (l *Lease[E, C]) Sending() { l.began.Store(int64(l.b.cfg.Clock())) }

// FirstByte takes the response time: the first data of the response, or, for
// plain connections, that the connection is up. Only the first call counts.
func (l *Lease[E, C]) FirstByte() {
	if l.sampled.CompareAndSwap(false, true) {
		now := l.b.cfg.Clock()
		l.load.Sample(now, now-time.Duration(l.began.Load()))
		l.back()
	}
}

// back is told of an answer. One that a probe got opens the gate of an application
// that was gone, at its first byte: the rest of a stream may take hours.
func (l *Lease[E, C]) back() {
	if !l.gone.Load() {
		return
	}
	l.gone.Store(false)
	if l.probeReach && l.reach.ok() {
		l.b.wake()
	}
}

// Penalize takes an answer that counts against the endpoint for a slow one: as
// slow as the penalty, or as the time that the answer asks for, within bounds. It
// stands for FirstByte, and does nothing without a penalty.
func (l *Lease[E, C]) Penalize(asked time.Duration) {
	penalty := l.b.cfg.Penalty
	if penalty <= 0 || !l.sampled.CompareAndSwap(false, true) {
		return
	}
	now := l.b.cfg.Clock()
	cost := max(penalty, min(asked, l.b.cfg.MaxRetryAfter))
	// It cannot make the endpoint look better than it is.
	l.load.Sample(now, max(cost, time.Duration(l.load.Estimate(now)*float64(time.Millisecond))))
}

// End gives the place back with what became of the request.
func (l *Lease[E, C]) End(v Verdict) {
	if !l.ended.CompareAndSwap(false, true) {
		return
	}
	if v != Neutral {
		l.FirstByte()
		l.back()
	}
	l.pending.Add(-1)
	if l.probeReach {
		// The connection's own report has come first if there was a new connection.
		if v != Neutral {
			l.reach.ok()
		}
		l.reach.release()
	}
	if cfg := &l.b.cfg; !cfg.Accrual.off() {
		l.answers.record(cfg.Accrual, cfg.Clock(), v, l.probeAnswers, cfg.Chance())
	}
	if l.probeReach || l.probeAnswers {
		l.b.wake()
	}
}
