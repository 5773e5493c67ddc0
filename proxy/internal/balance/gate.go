package balance

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Backoff says how long a gate stays shut: Min, doubled each time up to Max, and
// up to Jitter of that more, but never above Max.
type Backoff struct {
	Min, Max time.Duration
	Jitter   float64
}

// After is the delay before try n (from 0); random is in [0, 1).
func (b Backoff) After(n int, random float64) time.Duration {
	base := float64(b.Min) * math.Pow(2, float64(min(n, 62)))
	base = min(base, float64(b.Max))
	return time.Duration(min(base+base*max(b.Jitter, 0)*random, float64(b.Max)))
}

// gate keeps requests from an endpoint for a while, then admits one to probe.
// Reading it takes no lock.
//
//	open --fail--> shut --time--> one probe --ok--> open
//	                 ^----------------fail----|
type gate struct {
	until   atomic.Int64 // 0 is open; else when a probe may go
	probing atomic.Bool

	mu sync.Mutex
	n  int // failures since it was last open
}

// ready reports whether enter would admit.
func (g *gate) ready(now time.Duration) bool {
	until := g.until.Load()
	return until == 0 || int64(now) >= until && !g.probing.Load()
}

// enter admits a request. A probe must be answered with ok, fail or release.
func (g *gate) enter(now time.Duration) (probe, admitted bool) {
	until := g.until.Load()
	if until == 0 {
		return false, true
	}
	if int64(now) < until {
		return false, false
	}
	return true, g.probing.CompareAndSwap(false, true)
}

// fail shuts the gate, longer each time.
func (g *gate) fail(now time.Duration, b Backoff, random float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until := g.until.Load(); until != 0 && int64(now) < until {
		return // of the same wave of failures
	}
	g.until.Store(max(int64(now+b.After(g.n, random)), 1))
	g.n++
	g.probing.Store(false)
}

// ok opens the gate; it reports whether it was shut.
func (g *gate) ok() bool {
	if g.until.Load() == 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n = 0
	g.until.Store(0)
	g.probing.Store(false)
	return true
}

// release ends a probe that proved nothing: another may go.
func (g *gate) release() { g.probing.Store(false) }

// opens is when a waiting request should look again: false if only an event can
// change things.
func (g *gate) opens() (time.Duration, bool) {
	until := g.until.Load()
	return time.Duration(until), until != 0 && !g.probing.Load()
}
