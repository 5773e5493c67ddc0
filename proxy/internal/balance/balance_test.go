package balance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// conn is a client in tests.
type conn struct {
	of     string
	closed atomic.Int32
}

type testBalancer = Balancer[string, *conn]

func build(change func(*Config[string, *conn])) *testBalancer {
	cfg := Config[string, *conn]{
		Same:  func(a, b string) bool { return a == b },
		Open:  func(m *Member[string, *conn]) *conn { return &conn{of: m.Endpoint} },
		Close: func(c *conn) { c.closed.Add(1) },
	}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

func dice(seed uint64) (func(int) int, func() float64) {
	r := rand.New(rand.NewPCG(seed, 1))
	return r.IntN, r.Float64
}

func TestPickLeavesTheSlow(t *testing.T) {
	now := time.Duration(0)
	b := build(func(c *Config[string, *conn]) {
		c.Dice, c.Chance = dice(1)
		c.Clock = func() time.Duration { return now }
	})
	b.Set([]string{"a", "b", "c", "slow"})
	count := map[string]int{}
	for range 4000 {
		l, ok := b.Try(nil)
		if !ok {
			t.Fatal("nothing is ready")
		}
		count[l.Endpoint]++
		began := now
		now += time.Millisecond
		rtt := 2 * time.Millisecond
		if l.Endpoint == "slow" {
			rtt = 200 * time.Millisecond
		}
		l.load.Sample(now, rtt)
		l.sampled.Store(true)
		l.End(Success)
		_ = began
	}
	if count["slow"] > 40 {
		t.Errorf("the slow one got %d of 4000", count["slow"])
	}
	for _, name := range []string{"a", "b", "c"} {
		if count[name] < 1000 {
			t.Errorf("%s got %d of 4000", name, count[name])
		}
	}
}

func TestPickSpreadsEvenlyAmongEquals(t *testing.T) {
	b := build(func(c *Config[string, *conn]) {
		c.Dice, c.Chance = dice(2)
		c.Clock = func() time.Duration { return 0 }
	})
	b.Set([]string{"a", "b", "c", "d", "e"})
	count := map[string]int{}
	for range 10000 {
		l, _ := b.Try(nil)
		count[l.Endpoint]++
		l.pending.Add(-1) // no verdict: loads stay equal
	}
	for name, n := range count {
		if n < 1700 || n > 2300 {
			t.Errorf("%s got %d of 10000, want about 2000", name, n)
		}
	}
}

// Whatever is ready, pick returns a ready member, never avoid if there is
// another, and nil exactly if there is none.
func TestPickProperty(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 10000 {
		n := rng.IntN(6)
		members := make([]*Member[string, *conn], n)
		ready := 0
		for i := range members {
			members[i] = &Member[string, *conn]{Endpoint: fmt.Sprint(i)}
			members[i].load.seed(0, time.Duration(1+rng.IntN(100))*time.Millisecond, time.Second)
			members[i].pending.Store(int64(rng.IntN(5)))
			if rng.IntN(2) == 0 {
				members[i].reach.until.Store(1 << 60)
			} else {
				ready++
			}
		}
		var avoid *Member[string, *conn]
		if n > 0 && rng.IntN(2) == 0 {
			avoid = members[rng.IntN(n)]
		}
		got := pick(members, 10, rng.IntN, avoid)
		switch {
		case got == nil && ready > 0:
			t.Fatalf("none of %d ready ones was taken", ready)
		case got != nil && !got.ready(10):
			t.Fatal("one that is not ready was taken")
		case got != nil && got == avoid && ready > 1:
			t.Fatal("the one to avoid was taken though there was another")
		}
	}
}

// Connecting is not the endpoint's response time.
func TestResponseTimeCountsFromSending(t *testing.T) {
	now := time.Duration(0)
	b := build(func(c *Config[string, *conn]) {
		c.Clock = func() time.Duration { return now }
		c.DefaultRTT = time.Millisecond
	})
	b.Set([]string{"a"})
	l, _ := b.Try(nil)
	now += time.Second // the handshake
	l.Sending()
	now += 5 * time.Millisecond
	l.FirstByte()
	now += time.Second // the body
	l.End(Success)
	if got := l.load.Estimate(5*time.Millisecond + time.Second); got < 4.9 || got > 5.1 {
		t.Errorf("estimate %v ms, want 5", got)
	}
}

func TestSetKeepsWhatStays(t *testing.T) {
	b := build(nil)
	b.Set([]string{"a", "b"})
	before := map[string]*Member[string, *conn]{}
	for _, m := range b.Members() {
		before[m.Endpoint] = m
	}
	l, _ := b.Try(nil)
	b.Set([]string{"b", "c"})
	for _, m := range b.Members() {
		if m.Endpoint == "b" && m != before["b"] {
			t.Error("b was made anew")
		}
	}
	if got := before["a"].Client.closed.Load(); got != 1 {
		t.Errorf("a was closed %d times", got)
	}
	if got := before["b"].Client.closed.Load(); got != 0 {
		t.Errorf("b was closed %d times", got)
	}
	l.End(Success) // of one that may be gone
	b.Set(nil)
	if got := len(b.Members()); got != 0 {
		t.Errorf("%d members", got)
	}
}

func TestUnreachableIsLeftAlone(t *testing.T) {
	now := time.Duration(1)
	b := build(func(c *Config[string, *conn]) {
		c.Clock = func() time.Duration { return now }
		c.Chance = func() float64 { return 0 }
		c.Connect = Backoff{Min: 100, Max: 1000}
	})
	b.Set([]string{"a"})
	l, ok := b.Try(nil)
	if !ok {
		t.Fatal("nothing is ready")
	}
	l.Down()
	l.End(Neutral)
	if _, ok := b.Try(nil); ok {
		t.Error("it was taken while it should be left alone")
	}
	now += 100
	l, ok = b.Try(nil)
	if !ok {
		t.Fatal("it is never tried again")
	}
	if _, ok := b.Try(nil); ok {
		t.Error("two probe at once")
	}
	l.End(Neutral) // the client left before the connection was made
	if l, ok = b.Try(nil); !ok {
		t.Fatal("a probe without result keeps the gate shut")
	}
	l.Up()
	l.End(Success)
	if l, ok = b.Try(nil); !ok || l.probeReach {
		t.Error("it is not open again")
	}
}

func TestAcquireWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := build(func(c *Config[string, *conn]) { c.Failfast = 3 * time.Second })
		began := time.Now()
		time.AfterFunc(time.Second, func() { b.Set([]string{"a"}) })
		l, err := b.Acquire(t.Context(), nil)
		if err != nil || l.Endpoint != "a" || time.Since(began) != time.Second {
			t.Errorf("Acquire() = %v, %v after %v", l, err, time.Since(began))
		}
	})
}

func TestAcquireFailsFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := build(func(c *Config[string, *conn]) { c.Failfast = 3 * time.Second })
		began := time.Now()
		errs := make(chan error, 2)
		go func() { _, err := b.Acquire(t.Context(), nil); errs <- err }()
		time.AfterFunc(2*time.Second, func() { _, err := b.Acquire(t.Context(), nil); errs <- err })
		for range 2 { // who came later fails with the first
			if err := <-errs; !errors.Is(err, ErrFailfast) || time.Since(began) != 3*time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		}
		if b.Available() {
			t.Error("it is available after it has failed")
		}
		if _, err := b.Acquire(t.Context(), nil); !errors.Is(err, ErrFailfast) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		b.Set([]string{"a"})
		if !b.Available() {
			t.Error("it is not available with an endpoint")
		}
		if _, err := b.Acquire(t.Context(), nil); err != nil {
			t.Error(err)
		}
	})
}

func TestAcquireTriesAnEndpointThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := build(func(c *Config[string, *conn]) {
			c.Connect = Backoff{Min: 100 * time.Millisecond, Max: time.Minute}
		})
		b.Set([]string{"a"})
		l, _ := b.Try(nil)
		l.Down()
		l.End(Neutral)
		began := time.Now()
		l, err := b.Acquire(t.Context(), nil)
		if err != nil || time.Since(began) < 99*time.Millisecond || time.Since(began) > 110*time.Millisecond {
			t.Fatalf("Acquire() = %v, %v after %v", l, err, time.Since(began))
		}
		// Another waits for the verdict on that probe, not for a timer.
		got := make(chan error)
		go func() { _, err := b.Acquire(t.Context(), nil); got <- err }()
		synctest.Wait()
		l.Up()
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

func TestAcquireIsBoundedAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := build(func(c *Config[string, *conn]) { c.Capacity = 1 })
		ctx, cancel := context.WithCancelCause(t.Context())
		got := make(chan error)
		go func() { _, err := b.Acquire(ctx, nil); got <- err }()
		synctest.Wait()
		if _, err := b.Acquire(t.Context(), nil); !errors.Is(err, ErrFull) {
			t.Errorf("one too many: %v", err)
		}
		left := errors.New("left")
		cancel(left)
		if err := <-got; !errors.Is(err, left) {
			t.Errorf("cancelled: %v", err)
		}
		go func() { _, err := b.Acquire(t.Context(), nil); got <- err }()
		synctest.Wait()
		b.Close(nil)
		if err := <-got; !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		b.Set([]string{"late"})
		if len(b.Members()) != 0 {
			t.Error("a closed balancer took endpoints")
		}
	})
}

// Random sets replace each other while requests run; nothing is lost.
func TestSetModel(t *testing.T) {
	var opened, closed atomic.Int64
	b := build(func(c *Config[string, *conn]) {
		open, shut := c.Open, c.Close
		c.Open = func(m *Member[string, *conn]) *conn { opened.Add(1); return open(m) }
		c.Close = func(x *conn) { closed.Add(1); shut(x) }
		c.Accrual = Accrual{Consecutive: 2, Backoff: Backoff{Min: time.Microsecond, Max: time.Millisecond}}
		c.Connect = Backoff{Min: time.Microsecond, Max: time.Millisecond}
		c.Failfast = time.Millisecond
	})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 3))
			var last *Member[string, *conn]
			for {
				select {
				case <-stop:
					return
				default:
				}
				l, err := b.Acquire(t.Context(), last)
				if err != nil {
					if !errors.Is(err, ErrFailfast) {
						t.Errorf("Acquire() = %v", err)
						return
					}
					continue
				}
				last = l.Member
				switch rng.IntN(4) {
				case 0:
					l.Down()
				case 1:
					l.Up()
				}
				l.FirstByte()
				l.End(Verdict(rng.IntN(4)))
				l.End(Failure) // counts once
			}
		})
	}
	rng := rand.New(rand.NewPCG(9, 9))
	seen := map[*Member[string, *conn]]bool{}
	for range 10000 {
		var set []string
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			if rng.IntN(2) == 0 {
				set = append(set, name)
			}
		}
		rng.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
		b.Set(set)
		if got := b.Members(); len(got) != len(set) {
			t.Fatalf("%d members of %d", len(got), len(set))
		}
		for i, m := range b.Members() {
			if m.Endpoint != set[i] || m.Client.closed.Load() != 0 {
				t.Fatalf("member %d is %s, closed %d times", i, m.Endpoint, m.Client.closed.Load())
			}
			seen[m] = true
		}
		// What has left is not chosen by who asks after that.
		if l, ok := b.Try(nil); ok {
			if !slices.Contains(b.Members(), l.Member) {
				t.Fatalf("%s has left, and is chosen", l.Endpoint)
			}
			l.End(Neutral)
		}
	}
	close(stop)
	wg.Wait()
	b.Set(nil)
	if opened.Load() != closed.Load() || int(opened.Load()) != len(seen) {
		t.Errorf("%d opened, %d closed, %d seen", opened.Load(), closed.Load(), len(seen))
	}
	for m := range seen {
		if m.Pending() != 0 || m.Client.closed.Load() != 1 {
			t.Errorf("%s: %d pending, closed %d times", m.Endpoint, m.Pending(), m.Client.closed.Load())
		}
	}
	if b.Waiting() != 0 {
		t.Errorf("%d wait", b.Waiting())
	}
}

func BenchmarkTry(b *testing.B) {
	bal := build(nil)
	var set []string
	for i := range 100 {
		set = append(set, fmt.Sprint(i))
	}
	bal.Set(set)
	b.ReportAllocs()
	for b.Loop() {
		l, _ := bal.Try(nil)
		l.End(Success)
	}
}

// A request waits for a member that cannot be connected to now, not for one whose
// application is gone.
// TestGoneIsLeftAloneLonger: the proxy of a pod whose application is gone takes
// connections, and ends them. That they are made proves nothing.
func TestGoneIsLeftAloneLonger(t *testing.T) {
	now := time.Duration(0)
	b := New(Config[int, int]{
		Same: func(a, b int) bool { return a == b }, Open: func(*Member[int, int]) int { return 0 }, Close: func(int) {},
		Clock: func() time.Duration { return now }, Connect: Backoff{Min: time.Second, Max: time.Hour},
	})
	b.Set([]int{1})
	m := b.Members()[0]
	probe := func(after time.Duration) *Lease[int, int] {
		t.Helper()
		now += after - time.Millisecond
		if _, ok := b.Try(nil); ok {
			t.Errorf("asked again before %v have passed", after)
		}
		now += time.Millisecond
		l, ok := b.Try(nil)
		if !ok {
			t.Fatalf("not asked again after %v", after)
		}
		l.Up()
		if _, ok := b.Try(nil); ok {
			t.Error("a second request goes there before the first has an answer")
		}
		return l
	}
	l, _ := b.Try(nil)
	for _, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		l.Gone()
		l.End(Neutral)
		l = probe(wait)
	}
	l.End(Neutral) // its client has left
	if l, _ = b.Try(nil); l == nil {
		t.Fatal("nobody asks in its place")
	}
	l.FirstByte()
	if _, ok := b.Try(nil); !ok || b.Members()[0] != m {
		t.Error("it has answered, and others do not go there while the answer lasts")
	}
	l.End(Success)
}

func TestHope(t *testing.T) {
	now := time.Duration(0)
	b := New(Config[int, int]{
		Same: func(a, b int) bool { return a == b }, Open: func(*Member[int, int]) int { return 0 }, Close: func(int) {},
		Clock: func() time.Duration { return now }, Connect: Backoff{Min: time.Second, Max: time.Second},
	})
	b.Set([]int{1, 2})
	first, second := b.Members()[0], b.Members()[1]
	hope := func(what string, want bool) {
		t.Helper()
		if got := b.Hope(first); got != want {
			t.Errorf("%s: Hope() = %v, want %v", what, got, want)
		}
	}
	hope("the other is ready", true)
	second.Down()
	hope("it cannot be connected to", true)
	second.Gone()
	hope("its application is gone", false)
	now = 2 * time.Second
	hope("it may be asked again", true)
	second.Gone()
	now += time.Millisecond
	hope("it is still gone", false)
	now += 2 * time.Second
	l, ok := b.Try(first)
	if !ok || l.Member != second {
		t.Fatalf("Try() = %v, %v", l, ok)
	}
	l.End(Success)
	second.Down()
	hope("it has answered since", true)
	b.Set([]int{1})
	hope("there is no other", false)
}
