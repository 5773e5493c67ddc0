// Package feed applies the log to the tables. It is the one goroutine that does,
// and it waits for nothing but the log: what readers do with an answer never
// delays the next change.
package feed

import (
	"context"
	"fmt"
	"iter"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/destination/internal/table"
	"github.com/weftmesh/weft/services/kit/obs"
)

// reader hands out the log, the complete state first.
type reader interface {
	Read(ctx context.Context) iter.Seq2[bus.Cut, error]
}

// applier takes one cut and names the rows it could not read.
type applier interface {
	Apply(cut bus.Cut) []table.BadRow
}

// Feed carries cuts from the log to the tables.
type Feed struct {
	from reader
	to   applier
	cuts prometheus.Counter
	bad  *prometheus.CounterVec
}

// New makes a feed; nothing moves until Run.
func New(from reader, to applier, reg prometheus.Registerer) *Feed {
	f := &Feed{
		from: from,
		to:   to,
		cuts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weft_destination_cuts_total", Help: "Cuts of the log that were applied.",
		}),
		bad: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_destination_rows_unreadable_total", Help: "Rows of the log that could not be read and were skipped.",
		}, []string{"table"}),
	}
	reg.MustRegister(f.cuts, f.bad)
	return f
}

// Run applies cuts until ctx is done.
func (f *Feed) Run(ctx context.Context) error {
	for cut, err := range f.from.Read(ctx) {
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("reading the log: %w", err)
		}
		for _, b := range f.to.Apply(cut) {
			name := "unknown"
			if info, ok := bus.Info(b.Table); ok {
				name = info.Name
			}
			f.bad.WithLabelValues(name).Inc()
			slog.WarnContext(ctx, "row skipped", obs.Table(name), obs.Object(b.Key), obs.Error(b.Err))
		}
		f.cuts.Inc()
		if cut.Complete {
			slog.InfoContext(ctx, "state complete", obs.Epoch(cut.Epoch), obs.Seq(cut.Seq), obs.Count(len(cut.Changes)))
		}
	}
	return context.Cause(ctx)
}
