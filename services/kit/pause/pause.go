// Package pause is how a loop waits between two tries without outliving its work: every wait
// takes the context of who would otherwise try again, and says which of both ended.
package pause

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends, which it reports as false.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
