package balance

import (
	"context"
	"time"
)

// Waiting is how many requests wait for an endpoint.
func (b *Balancer[E, C]) Waiting() int64 { return b.waiting.Load() }

// wake lets waiting requests look again.
func (b *Balancer[E, C]) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.bell)
	b.bell = make(chan struct{})
}

func (b *Balancer[E, C]) listen() (<-chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bell, b.closed
}

// Acquire takes a place at an endpoint, and waits for one to be ready if need be.
func (b *Balancer[E, C]) Acquire(ctx context.Context, avoid *Member[E, C]) (*Lease[E, C], error) {
	return b.AcquireAt(ctx, avoid, b.cfg.Clock())
}

// AcquireAt is Acquire for whoever has just looked at the balancer's clock.
func (b *Balancer[E, C]) AcquireAt(ctx context.Context, avoid *Member[E, C], now time.Duration) (*Lease[E, C], error) {
	if l, ok := b.tryAt(avoid, now); ok {
		return l, nil
	}
	if b.waiting.Add(1) > int64(b.cfg.Capacity) {
		b.waiting.Add(-1)
		return nil, ErrFull
	}
	defer b.waiting.Add(-1)
	if told := b.cfg.Waited; told != nil {
		began := b.cfg.Clock()
		defer func() { told(b.cfg.Clock() - began) }()
	}
	failfast := time.NewTimer(b.cfg.Failfast)
	defer failfast.Stop()
	for {
		bell, closed := b.listen()
		if closed != nil {
			return nil, closed
		}
		// After listening, so that no change is missed.
		if l, ok := b.Try(avoid); ok {
			return l, nil
		}
		if b.shut.Load() {
			return nil, ErrFailfast
		}
		again, stop := b.next()
		select {
		case <-bell:
		case <-again:
		case <-failfast.C:
			b.turn(false)
			b.wake()
		case <-ctx.Done():
			stop()
			return nil, context.Cause(ctx)
		}
		stop()
	}
}

// turn opens or shuts the gate of all requests.
func (b *Balancer[E, C]) turn(open bool) {
	if b.shut.CompareAndSwap(open, !open) && b.cfg.Gate != nil {
		b.cfg.Gate(open)
	}
}

// next rings when the first of the shut gates opens; never, if none will.
func (b *Balancer[E, C]) next() (<-chan time.Time, func()) {
	var first time.Duration
	for _, m := range *b.now.Load() {
		for _, g := range []*gate{&m.reach, &m.answers.gate} {
			if at, ok := g.opens(); ok && (first == 0 || at < first) {
				first = at
			}
		}
	}
	if first == 0 {
		return nil, func() {}
	}
	t := time.NewTimer(max(first-b.cfg.Clock(), time.Millisecond))
	return t.C, func() { t.Stop() }
}
