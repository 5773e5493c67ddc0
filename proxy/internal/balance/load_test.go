package balance

import (
	"math"
	"testing"
	"time"
)

func TestLoadEstimates(t *testing.T) {
	const decay = 10 * time.Second
	type sample struct{ at, rtt time.Duration }
	for _, tt := range []struct {
		name    string
		samples []sample
		at      time.Duration
		want    float64 // ms
	}{
		{"seeded with the default", nil, 0, 30},
		{"a peak is believed at once", []sample{{0, 500 * time.Millisecond}}, 0, 500},
		{"it fades while idle", []sample{{0, 500 * time.Millisecond}}, decay, 500 / math.E},
		{"and is gone in the end", []sample{{0, 500 * time.Millisecond}}, 30 * decay, 0},
		{"a fast sample is believed by and by", []sample{{0, 100 * time.Millisecond}, {decay, 10 * time.Millisecond}}, decay, 100/math.E + 10*(1-1/math.E)},
		{"at the same instant it changes nothing", []sample{{0, 100 * time.Millisecond}, {0, time.Millisecond}}, 0, 100},
		{"a sample above the faded value is a peak", []sample{{0, 100 * time.Millisecond}, {2 * decay, 50 * time.Millisecond}}, 2 * decay, 50},
		{"a clock that went back adds nothing", []sample{{decay, 100 * time.Millisecond}}, 0, 100},
		{"a negative time is none", []sample{{0, -time.Second}}, 0, 30},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var l Load
			l.seed(0, 30*time.Millisecond, decay)
			for _, s := range tt.samples {
				l.Sample(s.at, s.rtt)
			}
			if got := l.Estimate(tt.at); math.Abs(got-tt.want) > tt.want/1000+1e-6 {
				t.Errorf("Estimate(%v) = %v, want %v", tt.at, got, tt.want)
			}
		})
	}
}

func TestLoadSeedHasAFloor(t *testing.T) {
	var l Load
	l.seed(0, time.Microsecond, time.Second)
	if got := l.Estimate(0); got != 1 {
		t.Errorf("Estimate() = %v, want 1", got)
	}
}

func TestLoadOutlivesItsClock(t *testing.T) {
	var l Load
	wrap := (1 << 32) * time.Millisecond
	l.seed(wrap-time.Second, 100*time.Millisecond, 10*time.Second)
	if got, want := l.Estimate(wrap+time.Second), 100*math.Exp(-0.2); math.Abs(got-want) > 0.1 {
		t.Errorf("across the wrap Estimate() = %v, want %v", got, want)
	}
}

// Pending requests count even when the estimate has faded to nothing.
func TestCostCountsPending(t *testing.T) {
	var l Load
	l.seed(0, 30*time.Millisecond, time.Second)
	if a, b := l.cost(time.Hour, 0), l.cost(time.Hour, 3); b != 4*a || a <= 0 {
		t.Errorf("cost with 0 and 3 pending: %v and %v", a, b)
	}
	if got := l.cost(0, 2); math.Abs(got-90) > 0.01 {
		t.Errorf("cost = %v, want 90", got)
	}
}

func TestLoadSamplesFromMany(t *testing.T) {
	var l Load
	l.seed(0, time.Millisecond, time.Second)
	done := make(chan struct{})
	for range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range 1000 {
				l.Sample(time.Duration(i)*time.Millisecond, 5*time.Millisecond)
			}
		}()
	}
	for range 8 {
		<-done
	}
	if got := l.Estimate(999 * time.Millisecond); got < 4.9 || got > 5.1 {
		t.Errorf("Estimate() = %v, want 5", got)
	}
}
