package balance

import (
	"fmt"
	"testing"
	"time"
)

func TestBackoffDoublesWithinItsBounds(t *testing.T) {
	b := Backoff{Min: 100 * time.Millisecond, Max: time.Second, Jitter: 0.5}
	for _, tt := range []struct {
		n      int
		random float64
		want   time.Duration
	}{
		{0, 0, 100 * time.Millisecond},
		{0, 0.5, 125 * time.Millisecond},
		{1, 0, 200 * time.Millisecond},
		{3, 0, 800 * time.Millisecond},
		{3, 1, time.Second}, // jitter never leads above Max
		{4, 0, time.Second},
		{1 << 40, 0.9, time.Second},
	} {
		if got := b.After(tt.n, tt.random); got != tt.want {
			t.Errorf("After(%d, %v) = %v, want %v", tt.n, tt.random, got, tt.want)
		}
	}
}

func TestGate(t *testing.T) {
	b := Backoff{Min: 100, Max: 1000}
	var g gate
	at := time.Duration(1)
	admit := func(want bool) {
		t.Helper()
		if got := g.ready(at); got != want {
			t.Fatalf("at %d ready = %v, want %v", at, got, want)
		}
	}
	admit(true)
	g.fail(at, b, 0) // until 101
	admit(false)
	at = 50
	g.fail(at, b, 0) // of the same wave
	at = 101
	admit(true)
	if probe, ok := g.enter(at); !probe || !ok {
		t.Fatalf("enter = %v %v, want a probe", probe, ok)
	}
	admit(false) // one is enough
	if _, ok := g.enter(at); ok {
		t.Fatal("a second probe was admitted")
	}
	g.release()
	admit(true)
	_, _ = g.enter(at)
	g.fail(at, b, 0) // twice as long: until 301
	at = 300
	admit(false)
	at = 301
	admit(true)
	_, _ = g.enter(at)
	if !g.ok() {
		t.Error("ok() = false of a gate that was shut")
	}
	admit(true)
	if probe, ok := g.enter(at); probe || !ok {
		t.Errorf("enter of an open gate = %v %v", probe, ok)
	}
	g.fail(at, b, 0) // the count began anew
	if until, ok := g.opens(); !ok || until != at+100 {
		t.Errorf("opens() = %v %v, want %v", until, ok, at+100)
	}
}

func TestBreaker(t *testing.T) {
	backoff := Backoff{Min: time.Second, Max: time.Minute}
	row := Accrual{Consecutive: 3, Backoff: backoff}
	unified := Accrual{Unified: true, Consecutive: 3, Backoff: backoff}
	rate := Accrual{Unified: true, SuccessRate: 0.8, Window: 10 * time.Second, MinRequests: 5, Backoff: backoff}
	// Verdicts are one per 100 ms: S success, F failure, L limited, N neutral; a
	// digit lets that many seconds pass.
	for _, tt := range []struct {
		name, verdicts string
		accrual        Accrual
		want           bool // still open
	}{
		{"off", "FFFFFFFFFF", Accrual{}, true},
		{"fewer in a row", "FFSFFSFF", row, true},
		{"enough in a row", "SSFFF", row, false},
		{"limits do not count in a row", "LLLLLL", unified, true},
		{"nor do they end a row", "FLFLF", unified, false},
		{"a limit is an answer like another where only rows count", "FFLFFLFF", row, true},
		{"cancelled requests say nothing", "FFNNNNN", row, true},
		{"too few requests", "FFFF", rate, true},
		{"rate too low", "SSSFF", rate, false},
		{"rate just enough", "SSSSF", rate, true},
		{"limits count in the rate", "SSSLL", rate, false},
		{"old failures leave the window", "FFF92SSSSSS", rate, true},
		{"failures within it stay", "FFF5SSSS", rate, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b breaker
			at := time.Duration(1)
			for _, c := range tt.verdicts {
				v, known := map[rune]Verdict{'S': Success, 'F': Failure, 'L': Limited, 'N': Neutral}[c]
				if !known {
					at += time.Duration(c-'0') * time.Second
					continue
				}
				b.record(tt.accrual, at, v, false, 0)
				at += 100 * time.Millisecond
			}
			if got := b.gate.until.Load() == 0; got != tt.want {
				t.Errorf("open = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestBreakerProbation(t *testing.T) {
	a := Accrual{Unified: true, Consecutive: 2, Backoff: Backoff{Min: time.Second, Max: 4 * time.Second}}
	var b breaker
	b.record(a, 1, Failure, false, 0)
	b.record(a, 1, Failure, false, 0)
	b.record(a, 2, Success, false, 0) // sent before it tripped: ignored
	if b.gate.ready(2) {
		t.Fatal("the breaker has not tripped")
	}
	at := time.Duration(1) + time.Second
	for i, wait := range []time.Duration{2 * time.Second, 4 * time.Second, 4 * time.Second} {
		if probe, ok := b.gate.enter(at); !probe || !ok {
			t.Fatalf("probe %d: %v %v", i, probe, ok)
		}
		b.record(a, at, Limited, true, 0) // fails a probe
		if b.gate.ready(at + wait - 1) {
			t.Fatalf("probe %d: ready too early", i)
		}
		at += wait
	}
	_, _ = b.gate.enter(at)
	b.record(a, at, Success, true, 0)
	b.record(a, at, Failure, false, 0)
	if !b.gate.ready(at) {
		t.Error("a success did not begin a new row")
	}
}

func ExampleBackoff_After() {
	b := Backoff{Min: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: 0.1}
	fmt.Println(b.After(0, 0), b.After(3, 0), b.After(20, 0))
	// Output: 100ms 800ms 10s
}
