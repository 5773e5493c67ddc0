package rpc

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// metrics are shared by all servers of one registry.
type metrics struct {
	calls  *calls
	panics prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	return &metrics{
		calls: shared(reg, newCalls(exportsTraces())),
		panics: shared[prometheus.Counter](reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weft_rpc_panics_total",
			Help: "Calls that ended because their handler panicked.",
		})),
	}
}

// shared registers c, or returns the one that was registered before it, so
// that a process may have two servers.
func shared[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	var already prometheus.AlreadyRegisteredError
	if err := reg.Register(c); errors.As(err, &already) {
		if old, ok := already.ExistingCollector.(C); ok {
			return old
		}
	}
	return c
}

// recovered turns a panic into an error for that one caller.
func (m *metrics) recovered(ctx context.Context, p any) error {
	m.panics.Inc()
	slog.ErrorContext(ctx, "handler panicked", "panic", p, "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "internal error") // no detail: it may hold another caller's data
}
