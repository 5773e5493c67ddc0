package balance

import (
	"math"
	"sync/atomic"
	"time"
)

// Load is a peak-sensitive moving average of response times: a slow sample is
// believed at once, a fast one only by and by, and an idle estimate fades
// towards zero so that an endpoint once slow is tried again. Readers and writers
// need no lock.
type Load struct {
	decay float64 // in ms

	joined, warming time.Duration // slow start: since when, and how long; never changed once in use

	// A float32 of milliseconds above a uint32 of milliseconds since the clock's
	// start, which wraps after 49 days: differences are taken modulo that.
	bits atomic.Uint64
}

// minRTT is the least a new endpoint is thought to need (spec/proxy.md §7.3).
const minRTT = time.Millisecond

// floor keeps the number of pending requests in the comparison when estimates
// have faded to nothing, in ms.
const floor = 1e-3

func (l *Load) seed(now time.Duration, rtt, decay time.Duration) {
	l.decay = ms(max(decay, time.Millisecond))
	l.bits.Store(pack(ms(max(rtt, minRTT)), now))
}

// warm makes an endpoint that is new among others dear at first.
func (l *Load) warm(now, long time.Duration) { l.joined, l.warming = now, long }

// coldest is how many times an endpoint that has just joined seems as loaded.
const coldest = 10

// cold is how much dearer than its load an endpoint is while it is new: its share
// grows from a tenth to all of it, in equal steps of time.
func (l *Load) cold(now time.Duration) float64 {
	if l.warming <= 0 {
		return 1
	}
	age := float64(max(now-l.joined, 0)) / float64(l.warming)
	if age >= 1 {
		return 1
	}
	return 1 / max(age, 1.0/coldest)
}

// Sample takes a response time measured at now.
func (l *Load) Sample(now, rtt time.Duration) {
	sample := ms(max(rtt, 0))
	for {
		old := l.bits.Load()
		value, age := unpack(old, now)
		keep := fade(age / l.decay)
		next := value*keep + sample*(1-keep)
		if sample > value*keep {
			next = sample
		}
		if l.bits.CompareAndSwap(old, pack(next, now)) {
			return
		}
	}
}

// Estimate is the response time expected at now, in ms.
func (l *Load) Estimate(now time.Duration) float64 {
	value, age := unpack(l.bits.Load(), now)
	return value * fade(age/l.decay)
}

// cost ranks endpoints: what a request more would wait for.
func (l *Load) cost(now time.Duration, pending int64) float64 {
	return max(l.Estimate(now), floor) * float64(pending+1) * l.cold(now)
}

// fade is what is left of an estimate after so many times the decay. A busy endpoint's
// is looked at again after a thousandth of it or less: a series is as exact there as
// what is kept of the estimate.
func fade(passed float64) float64 {
	if passed < 1e-3 {
		return 1 - passed + passed*passed/2
	}
	return math.Exp(-passed)
}

func pack(value float64, now time.Duration) uint64 {
	return uint64(math.Float32bits(float32(value)))<<32 | uint64(uint32(now.Milliseconds()))
}

func unpack(bits uint64, now time.Duration) (value, age float64) {
	value = float64(math.Float32frombits(uint32(bits >> 32)))
	passed := int32(uint32(now.Milliseconds()) - uint32(bits))
	return value, float64(max(passed, 0)) // another goroutine's clock may be ahead of ours
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
