package publish

import (
	"context"
	"time"

	"github.com/weftmesh/weft/bus"
)

// How long a writer that comes (back) looks for copies of the log before it
// begins anew. Peers answer within milliseconds; a snapshot of 150,000 pods
// takes about a second on a busy machine (BUS.md section 1).
const (
	lonely    = 2 * time.Second  // with nobody heard since the connection
	laborious = 15 * time.Second // with somebody heard, but no complete copy yet
)

// CatchUp waits until the copy of the log is complete, or nobody seems to have
// one. Without it a restarted writer would send every row again instead of the
// difference, and would not know the last good rows of what is bad now.
func CatchUp(ctx context.Context, t bus.Transport, copied Copy) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var since time.Time // of the connection
	for {
		if since.IsZero() && t.Connected() {
			since = time.Now()
		}
		st := copied.Status()
		if st.Synced {
			return nil
		}
		if !since.IsZero() {
			limit := lonely
			if !st.HeardAt.IsZero() {
				limit = laborious
			}
			if time.Since(since) > limit {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
