package balance

import (
	"sync"
	"time"
)

// Accrual says when failures of an endpoint that does answer shut its gate. The
// zero value is never.
type Accrual struct {
	Unified     bool    // Limited counts against the rate and fails probes; else it is a success
	Consecutive int     // failures in a row; 0 is no such limit
	SuccessRate float64 // over Window, with at least MinRequests; 0 is no such limit
	Window      time.Duration
	MinRequests int
	Backoff     Backoff
}

func (a Accrual) off() bool { return a.Consecutive <= 0 && a.SuccessRate <= 0 }

// Verdict is how a request to an endpoint ended.
type Verdict uint8

// The verdicts. Limited is a failure of the rate but not of a row: the endpoint
// is well, and asks for less. Neutral is no answer about the endpoint at all.
const (
	Neutral Verdict = iota
	Success
	Failure
	Limited
)

// buckets of the window (spec/proxy.md §7.5).
const buckets = 10

// breaker decides from verdicts when the endpoint is to be left alone.
type breaker struct {
	gate gate

	mu   sync.Mutex
	row  int // failures since the last success
	good [buckets]int
	bad  [buckets]int
	at   int64 // number of the newest bucket
}

// record takes a verdict at now. probe says that the request went through a gate
// that was shut; other verdicts that arrive while it is shut say nothing new.
func (b *breaker) record(a Accrual, now time.Duration, v Verdict, probe bool, random float64) {
	if a.off() {
		return
	}
	if v == Limited && !a.Unified {
		v = Success // the endpoint is well, and says so
	}
	if probe {
		switch v {
		case Success:
			b.reset()
			b.gate.ok()
		case Failure, Limited:
			b.gate.fail(now, a.Backoff, random)
		case Neutral:
			b.gate.release()
		}
		return
	}
	if v == Neutral || b.gate.until.Load() != 0 {
		return
	}
	if b.trips(a, now, v) {
		b.gate.fail(now, a.Backoff, random)
	}
}

func (b *breaker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.row, b.good, b.bad = 0, [buckets]int{}, [buckets]int{}
}

func (b *breaker) trips(a Accrual, now time.Duration, v Verdict) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch v {
	case Success:
		b.row = 0
	case Failure:
		b.row++
	}
	if a.SuccessRate > 0 {
		i := b.turn(now, max(a.Window, buckets))
		if v == Success {
			b.good[i]++
		} else {
			b.bad[i]++
		}
		good, total := 0, 0
		for i := range buckets {
			good += b.good[i]
			total += b.good[i] + b.bad[i]
		}
		if total >= max(a.MinRequests, 1) && float64(good) < a.SuccessRate*float64(total) {
			return true
		}
	}
	return a.Consecutive > 0 && b.row >= a.Consecutive
}

// turn empties the buckets that have left the window and returns the newest.
func (b *breaker) turn(now, window time.Duration) int {
	at := int64(now / (window / buckets))
	for steps := 0; b.at < at && steps < buckets; steps++ {
		b.at++
		b.good[b.at%buckets], b.bad[b.at%buckets] = 0, 0
	}
	b.at = max(at, b.at)
	return int(b.at % buckets)
}
