package run

import (
	"context"
	"sync/atomic"
	"time"
)

// ending tells the parts when the process must be gone.
type ending struct{ at atomic.Pointer[time.Time] }

type endingKey struct{}

func (e *ending) begin(at time.Time) { e.at.Store(&at) }
func (e *ending) begun() bool        { return e.at.Load() != nil }

// Grace is the time left for a part that was asked to stop: what all earlier
// parts have not used. Before the stop, and for a context that is not of a
// part (in tests), it is DefaultGrace.
func Grace(ctx context.Context) time.Duration {
	e, _ := ctx.Value(endingKey{}).(*ending)
	if e == nil {
		return DefaultGrace
	}
	at := e.at.Load()
	if at == nil {
		return DefaultGrace
	}
	return max(0, time.Until(*at))
}

// Ending is a context for what a part does after its own context is done, such
// as a last flush: it keeps ctx's values and lasts for the remaining grace, but
// no longer than most.
func Ending(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), min(most, Grace(ctx)))
}
