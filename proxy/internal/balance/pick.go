package balance

import (
	"slices"
	"time"
)

// Try takes a place at an endpoint if one is ready. It prefers another than avoid.
func (b *Balancer[E, C]) Try(avoid *Member[E, C]) (*Lease[E, C], bool) {
	return b.tryAt(avoid, b.cfg.Clock())
}

func (b *Balancer[E, C]) tryAt(avoid *Member[E, C], now time.Duration) (*Lease[E, C], bool) {
	members := *b.now.Load()
	for range 4 { // a gate that shut in between costs a turn
		m := pick(members, now, b.cfg.Dice, avoid)
		if m == nil {
			return nil, false
		}
		if l, ok := m.lease(now); ok {
			if b.shut.Load() {
				b.turn(true)
			}
			return l, true
		}
	}
	return nil, false
}

// Prefer takes a place at the endpoint that is meant, if it is in the set and takes
// requests.
func (b *Balancer[E, C]) Prefer(is func(E) bool) (*Lease[E, C], bool) {
	now := b.cfg.Clock()
	for _, m := range b.Members() {
		if is(m.Endpoint) {
			return m.lease(now)
		}
	}
	return nil, false
}

// pick chooses the less loaded of two ready members taken at random.
func pick[E, C any](members []*Member[E, C], now time.Duration, dice func(int) int, avoid *Member[E, C]) *Member[E, C] {
	if len(members) == 1 && members[0].ready(now) { // to avoid it is no use
		return members[0]
	}
	a := draw(members, now, dice, avoid, nil)
	if a == nil {
		if avoid != nil && avoid.ready(now) && slices.Contains(members, avoid) {
			return avoid
		}
		return nil
	}
	b := draw(members, now, dice, avoid, a)
	if b == nil || a.load.cost(now, a.pending.Load()) <= b.load.cost(now, b.pending.Load()) {
		return a
	}
	return b
}

// draw takes a random ready member other than x and y, nil if there is none.
func draw[E, C any](members []*Member[E, C], now time.Duration, dice func(int) int, x, y *Member[E, C]) *Member[E, C] {
	n := len(members)
	if n == 0 {
		return nil
	}
	for range 3 {
		if m := members[dice(n)]; m != x && m != y && m.ready(now) {
			return m
		}
	}
	// Few are ready: count on a random place to begin instead of on luck.
	start := dice(n)
	for i := range n {
		if m := members[(start+i)%n]; m != x && m != y && m.ready(now) {
			return m
		}
	}
	return nil
}
