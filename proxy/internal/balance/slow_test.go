package balance

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// reply is when a request's answer is there.
type reply struct {
	at    time.Duration
	lease *Lease[string, *conn]
}

type replies []reply

func (r replies) Len() int           { return len(r) }
func (r replies) Less(i, j int) bool { return r[i].at < r[j].at }
func (r replies) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *replies) Push(x any)        { *r = append(*r, x.(reply)) }
func (r *replies) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// simulate sends a thousand requests a second, at random moments, to four
// endpoints, and returns how long each took and how many the last endpoint got.
// One of a thousand answers is held up by something, whoever gives it.
func simulate(seed uint64, long, late time.Duration) (took []time.Duration, last int) {
	now := time.Duration(0)
	rng := rand.New(rand.NewPCG(seed, 1))
	b := build(func(c *Config[string, *conn]) {
		c.Dice, c.Chance = dice(seed)
		c.Clock = func() time.Duration { return now }
	})
	b.Set([]string{"a", "b", "c", "last"})
	var open replies
	answer := func(until time.Duration) {
		for len(open) > 0 && open[0].at <= until {
			r := heap.Pop(&open).(reply)
			now = r.at
			r.lease.End(Success)
		}
	}
	for at := time.Duration(0); at < long; at += time.Duration(rng.ExpFloat64() * float64(time.Millisecond)) {
		answer(at)
		now = at
		l, ok := b.Try(nil)
		if !ok {
			return nil, 0
		}
		rtt := time.Millisecond + time.Duration(rng.ExpFloat64()*float64(time.Millisecond))
		if rng.IntN(1000) == 0 {
			rtt += 20 * time.Millisecond
		}
		if l.Endpoint == "last" {
			rtt += late
			last++
		}
		took = append(took, rtt)
		heap.Push(&open, reply{at + rtt, l})
	}
	answer(1 << 60)
	slices.Sort(took)
	return took, last
}

// One endpoint of four that takes 200 ms longer than the others makes the slowest
// hundredth of the requests a tenth slower at most, its discovery included.
func TestOneSlowOfFour(t *testing.T) {
	for seed := range uint64(8) {
		const long = time.Minute
		healthy, _ := simulate(seed, long, 0)
		got, last := simulate(seed, long, 200*time.Millisecond)
		if len(healthy) == 0 || len(got) == 0 {
			t.Fatal("nothing was ready")
		}
		was, is := healthy[len(healthy)*99/100], got[len(got)*99/100]
		t.Logf("seed %d: p99 %v, with a slow one %v; it got %d of %d", seed, was, is, last, len(got))
		if float64(is) > 1.1*float64(was) {
			t.Errorf("seed %d: p99 is %v, %v without the slow one", seed, is, was)
		}
	}
}
