// Package feed carries the log into the tables. It is the one goroutine that
// changes them; it never waits for a proxy.
package feed

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// reader is the log.
type reader interface {
	Read(ctx context.Context) iter.Seq2[bus.Cut, error]
}

// tables is where the log goes.
type tables interface {
	Apply(table.Cut) table.Report
}

// maxProblems is how many problems of one cut are logged one by one: a cluster
// full of mistakes must not fill the disk at each restart.
const maxProblems = 20

// Feed applies cuts.
type Feed struct {
	log     reader
	tables  tables
	tracer  trace.Tracer
	skipped prometheus.Counter
	applied prometheus.Histogram
}

// New makes a feed; nothing happens until Run.
func New(log reader, t tables, reg prometheus.Registerer) *Feed {
	f := &Feed{
		log:    log,
		tables: t,
		tracer: otel.Tracer("github.com/weftmesh/weft/services/policy"),
		skipped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weft_policy_rows_skipped_total",
			Help: "Rows of the log that could not be read.",
		}),
		applied: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "weft_policy_apply_seconds",
			Help:    "Time to apply one cut of the log to the tables.",
			Buckets: []float64{.00001, .0001, .001, .01, .1, 1, 10},
		}),
	}
	reg.MustRegister(f.skipped, f.applied)
	return f
}

// Run applies cuts until ctx is done.
func (f *Feed) Run(ctx context.Context) error {
	for cut, err := range f.log.Read(ctx) {
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err //nolint:wrapcheck // it says "reading the log"
		}
		f.apply(ctx, cut)
	}
	return nil
}

func (f *Feed) apply(ctx context.Context, cut bus.Cut) {
	began := time.Now()
	if cut.Trace.IsValid() {
		_, span := f.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, cut.Trace), "apply to tables",
			trace.WithAttributes(attribute.Int("rows", len(cut.Changes))))
		defer span.End()
	}
	report := f.tables.Apply(table.Cut{
		Changes:  cut.Changes,
		Complete: cut.Complete,
		Cause:    table.Cause{ObservedAt: cut.ObservedAt, Trace: cut.Trace},
		Position: table.Position{Epoch: cut.Epoch, Seq: cut.Seq},
	})
	f.applied.Observe(time.Since(began).Seconds())
	f.skipped.Add(float64(len(report.Skipped)))
	if cut.Complete {
		slog.Info("complete state applied", obs.Epoch(cut.Epoch), obs.Seq(cut.Seq),
			obs.Count(len(cut.Changes)), obs.Took(time.Since(began)))
	}
	tell(report)
}

// tell logs what somebody may want to mend. Each comes once a change.
func tell(report table.Report) {
	for i, err := range report.Skipped {
		if i == maxProblems {
			break
		}
		slog.Error("row skipped", obs.Error(err))
	}
	objects := slices.Sorted(maps.Keys(report.Problems))
	for i, object := range objects {
		if i == maxProblems {
			slog.Warn("more objects are partly ignored", obs.Count(len(objects)-i))
			break
		}
		slog.Warn("object is partly ignored", obs.Object(object), obs.Reason(strings.Join(report.Problems[object], "; ")))
	}
}
