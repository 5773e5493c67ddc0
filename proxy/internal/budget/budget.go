// Package budget bounds how much of a service's traffic may be tries of requests
// that failed, so that tries do not become the load that makes requests fail. It
// is pure: the time comes as an argument.
package budget

import (
	"math"
	"sync"
	"time"
)

// Config is what a budget allows.
type Config struct {
	Ratio     float64       // of tries to requests, 0 to 1000
	TTL       time.Duration // how long a request counts
	PerSecond int           // tries that are always allowed
}

// slots of the time that counts; the newest is being filled.
const slots = 10

// most bounds what one slot holds, in requests: far above what a proxy carries.
const most = 1 << 40

// A Budget counts requests of the last TTL: each deposits a share of a try. Any
// goroutine may use it.
type Budget struct {
	deposit  int64 // of a request
	withdraw int64 // of a try
	reserve  int64
	slot     time.Duration

	mu  sync.Mutex
	at  int64 // number of the newest slot
	sum [slots]int64
}

// New returns a budget in which nothing has been deposited.
func New(c Config) *Budget {
	b := &Budget{slot: max(c.TTL/slots, 1)}
	// In whole numbers: a request puts in 1000, so that shares such as a third come
	// out near enough.
	b.deposit, b.withdraw = 1000, 1
	if c.Ratio > 0 {
		b.withdraw = int64(min(max(math.Round(1000/c.Ratio), 1), most))
	} else {
		b.deposit = 0
	}
	b.reserve = int64(min(float64(c.PerSecond)*float64(max(c.TTL/time.Second, 1))*float64(b.withdraw), 1<<62))
	return b
}

// Deposit counts a request that is no try, at now since any start.
func (b *Budget) Deposit(now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.turn(now)
	b.sum[i] = min(b.sum[i]+b.deposit, most)
}

// Withdraw takes what a try costs; it is false if there is not enough.
func (b *Budget) Withdraw(now time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.turn(now)
	total := b.reserve
	for _, n := range b.sum {
		total += n
	}
	if total < b.withdraw {
		return false
	}
	b.sum[i] -= b.withdraw
	return true
}

// turn forgets what is too old and returns the newest slot.
func (b *Budget) turn(now time.Duration) int {
	at := int64(now / b.slot)
	for steps := 0; b.at < at && steps < slots; steps++ {
		b.at++
		b.sum[b.at%slots] = 0
	}
	b.at = max(at, b.at)
	return int(b.at % slots)
}
