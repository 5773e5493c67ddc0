package wire

import (
	"runtime"
	"sync/atomic"
)

// Before a goroutine reads a socket it lets the others run: on a busy processor what
// it waits for has come when it is its turn again, which saves a read in vain, the way
// through the poller and a wake-up, and what the others write to one peer goes out
// together. Where nobody else is ready that takes a fifth of a microsecond.

// maxTaken bounds the reads that go past the poller one after the other, in all
// connections: as long as somebody is ready, nobody looks who else might be. So many
// take some milliseconds; the runtime itself would look after ten.
const maxTaken = 512

// taken counts them since the poller has woken somebody.
var taken atomic.Int32

// alone reports whether there is one processor. With more, others run anyway, and
// who gives way would go on elsewhere.
func alone() bool { return runtime.GOMAXPROCS(0) == 1 }

func giveWay() {
	if taken.Load() < maxTaken {
		runtime.Gosched()
	}
}

// tookTurn is told of each read, and whether it had to wait for the poller.
func tookTurn(waited bool) {
	switch {
	case !waited:
		taken.Add(1)
	case taken.Load() > 0:
		taken.Store(0)
	}
}
