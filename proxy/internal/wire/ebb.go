package wire

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	ebbEvery = 5 * time.Second
	// ebbSlack is how much more than what is alive the process may hold without
	// anybody giving it back, in bytes: a collection is not worth less.
	ebbSlack = 4 << 20
	// ebbCalm is how much may be allocated between two looks for the proxy to be
	// calm, in bytes. A busy one collects by itself.
	ebbCalm = 4 << 20
)

// Ebb gives memory back to the system after a burst, until ctx ends. The runtime
// collects when the heap has grown, and a proxy that has become calm grows it no
// more: what a burst has left in pools would stay for minutes (complaints F18, F21).
// A collection that finds little to give back is not repeated until there is more.
// also is called with each, for what else may be given back then.
func Ebb(ctx context.Context, also func()) error {
	var e ebb
	tick := time.NewTicker(ebbEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if e.due(read()) {
				runtime.GC() // what is in pools dies with the second
				debug.FreeOSMemory()
				also()
				e.held = read().held
			}
		}
	}
}

// levels are what the runtime says of its memory, in bytes.
type levels struct {
	allocated uint64 // ever
	held      uint64 // of the system's memory, of which some is alive
}

// ebb decides when to collect.
type ebb struct {
	last levels
	held uint64 // after the last collection; 0 before the first, which the start is worth
}

func (e *ebb) due(now levels) bool {
	calm := now.allocated-e.last.allocated < ebbCalm
	e.last = now
	e.held = min(e.held, now.held) // the runtime has given some back
	return calm && now.held > e.held+ebbSlack
}

func read() levels {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	return levels{allocated: samples[0].Value.Uint64(), held: samples[1].Value.Uint64() - samples[2].Value.Uint64()}
}
