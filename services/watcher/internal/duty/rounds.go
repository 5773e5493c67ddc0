// Package duty is what the leader's duties beside the log have in common: when they look
// at what is there, and how they complain of an API server that refuses them.
package duty

import (
	"context"
	"time"

	"github.com/weftmesh/weft/services/kit/pause"
)

// Rounds is when to look: soon after a cause, and from time to time without one.
type Rounds struct {
	every, debounce time.Duration
	wake            chan struct{}
}

// NewRounds makes rounds each so often without a cause (0 means 10 s), and when causes
// have been collected for as long as debounce (0 means 100 ms).
func NewRounds(every, debounce time.Duration) *Rounds {
	if every <= 0 {
		every = 10 * time.Second
	}
	if debounce <= 0 {
		debounce = 100 * time.Millisecond
	}
	return &Rounds{every: every, debounce: debounce, wake: make(chan struct{}, 1)}
}

// Debounce is for how long causes are collected.
func (r *Rounds) Debounce() time.Duration { return r.debounce }

// Again asks for a round. It never blocks, and anybody may call it.
func (r *Rounds) Again() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run makes rounds, one at a time, until ctx ends.
func (r *Rounds) Run(ctx context.Context, round func(context.Context)) {
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-r.wake:
			if !pause.For(ctx, r.debounce) {
				return
			}
			select {
			case <-r.wake: // came in the meantime
			default:
			}
		}
		round(ctx)
	}
}
