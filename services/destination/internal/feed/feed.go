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
	from  reader
	to    applier
	count *Metrics
}

// Metrics are counted over all feeds of a process.
type Metrics struct {
	cuts prometheus.Counter
	bad  *prometheus.CounterVec
}

// NewMetrics makes and registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		cuts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weft_destination_cuts_total", Help: "Cuts of the log, and of linked clusters' logs, that were applied.",
		}),
		bad: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_destination_rows_unreadable_total", Help: "Rows that could not be read, or make no sense, and were skipped.",
		}, []string{"table"}),
	}
	reg.MustRegister(m.cuts, m.bad)
	return m
}

// New makes a feed; nothing moves until Run.
func New(from reader, to applier, count *Metrics) *Feed { return &Feed{from, to, count} }

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
			f.count.bad.WithLabelValues(name).Inc()
			slog.WarnContext(ctx, "row skipped", obs.Table(name), obs.Object(b.Key), obs.Error(b.Err))
		}
		f.count.cuts.Inc()
		if cut.Complete {
			slog.InfoContext(ctx, "state complete", obs.Epoch(cut.Epoch), obs.Seq(cut.Seq), obs.Count(len(cut.Changes)))
		}
	}
	return context.Cause(ctx)
}
