package balance

import (
	"math/rand/v2"
	"testing"
	"time"
)

// model is the breaker as spec/proxy.md §7.5 puts it, plainly and slowly.
type model struct {
	a        Accrual
	verdicts []said // since it was last reset
	row      int
	until    time.Duration // 0 is open
	probing  bool
	shut     int // times in a row
}

type said struct {
	bucket int64
	good   bool
}

func (m *model) admits(now time.Duration) (probe, ok bool) {
	switch {
	case m.until == 0:
		return false, true
	case now < m.until || m.probing:
		return false, false
	}
	return true, true
}

func (m *model) trip(now time.Duration, random float64) {
	m.until = now + m.a.Backoff.After(m.shut, random)
	m.shut++
	m.probing = false
}

func (m *model) record(now time.Duration, v Verdict, probe bool, random float64) {
	if m.a.off() {
		return
	}
	if v == Limited && !m.a.Unified {
		v = Success
	}
	switch {
	case probe && v == Success:
		*m = model{a: m.a}
		return
	case probe && v == Neutral:
		m.probing = false
		return
	case probe:
		m.trip(now, random)
		return
	case v == Neutral, m.until != 0:
		return
	case v == Success:
		m.row = 0
	case v == Failure:
		m.row++
	}
	bucket := int64(now / (m.a.Window / buckets))
	m.verdicts = append(m.verdicts, said{bucket, v == Success})
	good, total := 0, 0
	for _, s := range m.verdicts {
		if s.bucket > bucket-buckets {
			total++
			if s.good {
				good++
			}
		}
	}
	if m.a.SuccessRate > 0 && total >= max(m.a.MinRequests, 1) && float64(good) < m.a.SuccessRate*float64(total) ||
		m.a.Consecutive > 0 && m.row >= m.a.Consecutive {
		m.trip(now, random)
	}
}

// Random requests, some of them in flight while others end: the breaker does what
// the model does, admits one probe at a time, and never stays shut for ever.
func TestBreakerModel(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 5))
		a := Accrual{
			Unified: r.IntN(2) == 0, Window: 10 * time.Second, MinRequests: r.IntN(8),
			Backoff: Backoff{Min: time.Second, Max: 20 * time.Second, Jitter: 0.5},
		}
		if r.IntN(3) > 0 {
			a.Consecutive = 1 + r.IntN(5)
		}
		if a.Unified {
			a.SuccessRate = float64(r.IntN(10)) / 10
		}
		var b breaker
		m := model{a: a}
		now := time.Duration(1)
		type flight struct{ probe bool }
		var flying []flight
		probes := 0
		for step := range 10_000 {
			now += time.Duration(r.IntN(int(300 * time.Millisecond)))
			if r.IntN(2) == 0 && len(flying) < 10 {
				wantProbe, want := m.admits(now)
				probe, ok := b.gate.enter(now)
				if probe != wantProbe && ok || ok != want {
					t.Fatalf("seed %d, step %d: enter() = %v %v, want %v %v", seed, step, probe, ok, wantProbe, want)
				}
				if ok {
					flying = append(flying, flight{probe})
					if probe {
						m.probing = true
						probes++
					}
				}
				continue
			}
			if len(flying) == 0 {
				continue
			}
			i := r.IntN(len(flying))
			f := flying[i]
			flying = append(flying[:i], flying[i+1:]...)
			v, random := Verdict(r.IntN(4)), r.Float64()
			m.record(now, v, f.probe, random)
			b.record(a, now, v, f.probe, random)
			if got := time.Duration(b.gate.until.Load()); got != m.until || b.gate.probing.Load() != m.probing {
				t.Fatalf("seed %d, step %d, %v (probe %v): shut until %v probing %v, want %v %v; %+v",
					seed, step, v, f.probe, got, b.gate.probing.Load(), m.until, m.probing, a)
			}
		}
		if !a.off() && a.Consecutive > 0 && probes == 0 {
			t.Errorf("seed %d: it never tripped, or never came back", seed)
		}
		// Whatever has been, it opens again once the endpoint is well.
		for _, f := range flying {
			b.record(a, now, Success, f.probe, 0)
		}
		now += time.Minute
		if probe, ok := b.gate.enter(now); !ok {
			t.Errorf("seed %d: it stays shut", seed)
		} else if probe {
			b.record(a, now, Success, true, 0)
		}
		if !b.gate.ready(now) {
			t.Errorf("seed %d: it does not open", seed)
		}
	}
}

// An endpoint that joins others gets a small share at first; the first endpoints of
// a set get theirs at once, and so does everybody when the time is over.
func TestSlowStart(t *testing.T) {
	now := time.Duration(0)
	b := build(func(c *Config[string, *conn]) {
		c.Dice, c.Chance = dice(3)
		c.Clock = func() time.Duration { return now }
		c.SlowStart = 10 * time.Second
	})
	share := func(name string) int {
		n := 0
		var held []*Lease[string, *conn]
		for range 1100 { // all in flight at once: only load decides
			l, ok := b.Try(nil)
			if !ok {
				t.Fatal("nothing is ready")
			}
			held = append(held, l)
			if l.Endpoint == name {
				n++
			}
		}
		for _, l := range held {
			l.sampled.Store(true) // a response time of nothing would weigh in
			l.End(Neutral)
		}
		return n
	}
	b.Set([]string{"a", "b"})
	if n := share("a"); n < 450 || n > 650 {
		t.Errorf("a got %d of 1100 from the start", n)
	}
	now += time.Hour
	for _, m := range b.Members() {
		m.load.seed(now, 30*time.Millisecond, 10*time.Second)
	}
	b.Set([]string{"a", "b", "new"})
	early := share("new")
	now += 5 * time.Second
	middle := share("new")
	now += 5 * time.Second
	late := share("new")
	if early < 10 || early > 120 || middle < 2*early || middle > 350 || late < 300 {
		t.Errorf("of 1100, the new one got %d at first, %d half-way, %d at last", early, middle, late)
	}
}

func TestPenalize(t *testing.T) {
	for _, tt := range []struct {
		name  string
		asked time.Duration
		want  float64 // ms
	}{
		{"the penalty at least", 0, 5000},
		{"what is asked for", 20 * time.Second, 20_000},
		{"no more than the most", time.Hour, 300_000},
	} {
		now := time.Duration(time.Second)
		b := build(func(c *Config[string, *conn]) {
			c.Clock = func() time.Duration { return now }
			c.Penalty, c.MaxRetryAfter = 5*time.Second, 300*time.Second
		})
		b.Set([]string{"a"})
		l, _ := b.Try(nil)
		l.Penalize(tt.asked)
		l.FirstByte() // says nothing more
		l.End(Failure)
		if got := b.Members()[0].load.Estimate(now); got < tt.want*0.99 || got > tt.want*1.01 {
			t.Errorf("%s: estimated at %.0f ms, want %.0f", tt.name, got, tt.want)
		}
	}
	// Without a penalty an answer costs what it took; and one that is slower already
	// does not get better by failing.
	now := time.Duration(time.Second)
	b := build(func(c *Config[string, *conn]) { c.Clock = func() time.Duration { return now } })
	b.Set([]string{"a"})
	l, _ := b.Try(nil)
	l.Penalize(time.Hour)
	l.End(Failure)
	if got := b.Members()[0].load.Estimate(now); got > 31 {
		t.Errorf("without a penalty: %.0f ms", got)
	}
	b = build(func(c *Config[string, *conn]) {
		c.Clock = func() time.Duration { return now }
		c.Penalty = time.Second
	})
	b.Set([]string{"a"})
	b.Members()[0].load.Sample(now, time.Minute)
	l, _ = b.Try(nil)
	l.Penalize(0)
	l.End(Failure)
	if got := b.Members()[0].load.Estimate(now); got < 59_000 {
		t.Errorf("a slow one got better by failing: %.0f ms", got)
	}
}

func TestPrefer(t *testing.T) {
	b := build(nil)
	b.Set([]string{"a", "b"})
	is := func(name string) func(string) bool { return func(e string) bool { return e == name } }
	l, ok := b.Prefer(is("b"))
	if !ok || l.Endpoint != "b" {
		t.Fatalf("got %v, %v", l, ok)
	}
	l.Down()
	l.End(Neutral)
	if _, ok := b.Prefer(is("b")); ok {
		t.Error("one that cannot be reached is preferred")
	}
	if _, ok := b.Prefer(is("c")); ok {
		t.Error("one that is not there is preferred")
	}
}
