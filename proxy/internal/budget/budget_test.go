package budget

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func TestBudget(t *testing.T) {
	for _, tt := range []struct {
		name     string
		config   Config
		requests int
		want     int // tries that are allowed at once
	}{
		{"nothing without requests", Config{Ratio: 0.2, TTL: 10 * time.Second}, 0, 0},
		{"a fifth", Config{Ratio: 0.2, TTL: 10 * time.Second}, 100, 20},
		{"a tenth of few", Config{Ratio: 0.1, TTL: 10 * time.Second}, 9, 0},
		{"one for one", Config{Ratio: 1, TTL: time.Second}, 7, 7},
		{"several for one", Config{Ratio: 3, TTL: time.Second}, 10, 30},
		{"the most", Config{Ratio: 1000, TTL: time.Second}, 2, 2000},
		{"none", Config{Ratio: 0, TTL: time.Second}, 1000, 0},
		{"a share of nearly nothing", Config{Ratio: 1e-30, TTL: time.Second}, 1000, 0},
		{"beside it, the reserve", Config{Ratio: 1e-30, TTL: time.Minute, PerSecond: 2}, 1000, 120},
		{"a reserve beyond all numbers", Config{Ratio: 1e-30, TTL: time.Minute, PerSecond: 1<<31 - 1}, 0, 10_000},
		{"the reserve", Config{Ratio: 0, TTL: 10 * time.Second, PerSecond: 3}, 0, 30},
		{"reserve and share", Config{Ratio: 0.5, TTL: 2 * time.Second, PerSecond: 5}, 10, 15},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := New(tt.config)
			for range tt.requests {
				b.Deposit(time.Millisecond)
			}
			got := 0
			for b.Withdraw(2*time.Millisecond) && got < 10_000 {
				got++
			}
			if got != tt.want {
				t.Errorf("%d tries, want %d", got, tt.want)
			}
		})
	}
}

func TestBudgetForgets(t *testing.T) {
	b := New(Config{Ratio: 1, TTL: 10 * time.Second})
	b.Deposit(0)
	if b.Withdraw(10 * time.Second) {
		t.Error("a request counts after its time")
	}
	b.Deposit(11 * time.Second)
	if !b.Withdraw(15*time.Second) || b.Withdraw(15*time.Second) {
		t.Error("a request counts for one try, within its time")
	}
	if b.Withdraw(1000 * time.Hour) {
		t.Error("nothing counts for ever")
	}
}

// Whatever comes in whatever order, tries stay within the share and the reserve of
// any window.
func TestBudgetProperty(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := Config{Ratio: float64(1+r.IntN(10)) / 10, TTL: 10 * time.Second, PerSecond: r.IntN(3)}
		b := New(c)
		now := time.Duration(0)
		requests, tries := 0, 0
		for range 2000 {
			now += time.Duration(r.IntN(int(200 * time.Millisecond)))
			if r.IntN(2) == 0 {
				b.Deposit(now)
				requests++
			} else if b.Withdraw(now) {
				tries++
			}
		}
		// The reserve may be used up once for each time that counts.
		most := float64(requests)*c.Ratio*1.01 + float64(c.PerSecond)*float64(now+c.TTL)/float64(time.Second) + 1
		if float64(tries) > most {
			t.Errorf("seed %d, %+v: %d tries of %d requests in %v, at most %.0f", seed, c, tries, requests, now, most)
		}
	}
}

func Example() {
	b := New(Config{Ratio: 0.5, TTL: 10 * time.Second})
	b.Deposit(0)
	b.Deposit(0)
	fmt.Println(b.Withdraw(time.Second), b.Withdraw(time.Second))
	// Output: true false
}
