// Package reconcile keeps a sink equal to what the other cluster exports.
//
// It is level-triggered: each round looks at everything that is known now, so a
// missed event, a failed write or a restart is made good by the next round.
// While nothing is known, nothing is written and nothing is deleted.
package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/link"
)

// source is the other cluster.
type source interface {
	Tables() (derive.Tables, bool)
	Changed() <-chan struct{}
}

// sink is where copies are written.
type sink interface {
	// Apply makes the copies exactly these. Problems are copies that cannot be
	// written as long as things are as they are; an error is worth another try.
	Apply(ctx context.Context, want []derive.Mirror) (Done, error)
	// Join makes the cluster a member of exactly these federated services.
	Join(ctx context.Context, want []derive.Member) (Done, error)
}

// Done is what a round changed.
type Done struct {
	Created, Updated, Deleted int
	Problems                  []derive.Problem
}

func (d *Done) add(o Done) {
	d.Created, d.Updated, d.Deleted = d.Created+o.Created, d.Updated+o.Updated, d.Deleted+o.Deleted
	d.Problems = append(d.Problems, o.Problems...)
}

// links tells how the other cluster is reached now: names of gateways may
// change their addresses.
type links interface {
	Link(ctx context.Context) (derive.Link, error)
	// Report takes what a round came to.
	Report(ctx context.Context, o link.Outcome) error
}

// Config of a Loop; zero durations mean the defaults.
type Config struct {
	// Settle is how long a burst of changes is collected.
	Settle time.Duration
	// Every is the time between rounds without a change.
	Every time.Duration
	// Retry is the first pause after a failure; it doubles up to Every.
	Retry time.Duration
}

// The defaults. Attempts bound how often one failed round is tried again before
// it waits for a change, or for Every.
const (
	defaultSettle = 50 * time.Millisecond
	defaultEvery  = 30 * time.Second
	defaultRetry  = 500 * time.Millisecond
	attempts      = 5
)

// Loop runs the rounds.
type Loop struct {
	source source
	links  links
	sink   sink
	cfg    Config

	mirrored, federated, refused prometheus.Gauge
	changes                      *prometheus.CounterVec
	failures                     prometheus.Counter
	problems                     []derive.Problem // of the last round: each is reported once
}

// New makes a loop whose metrics are in reg.
func New(source source, links links, sink sink, cfg Config, reg prometheus.Registerer) *Loop {
	if cfg.Settle == 0 {
		cfg.Settle = defaultSettle
	}
	if cfg.Every == 0 {
		cfg.Every = defaultEvery
	}
	if cfg.Retry == 0 {
		cfg.Retry = defaultRetry
	}
	l := &Loop{
		source: source, links: links, sink: sink, cfg: cfg,
		mirrored: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weft_mirror_services", Help: "Services of the other cluster that should exist here.",
		}),
		federated: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weft_mirror_federated_services", Help: "Federated services that the other cluster should be a member of.",
		}),
		refused: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weft_mirror_refused_services", Help: "Exported services that cannot be copied; the log says why.",
		}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_mirror_changes_total", Help: "Objects or files created, updated and deleted.",
		}, []string{"change"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weft_mirror_failed_rounds_total", Help: "Rounds that could not write everything.",
		}),
	}
	reg.MustRegister(l.mirrored, l.federated, l.refused, l.changes, l.failures)
	return l
}

// Run makes rounds until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	failed := 0
	for {
		wait := l.cfg.Every
		switch err := l.round(ctx); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			l.failures.Inc()
			slog.Warn("copying services failed", obs.Error(err))
			if failed++; failed <= attempts {
				wait = pause(l.cfg.Retry, failed, l.cfg.Every)
			}
		default:
			failed = 0
		}
		if err := l.pause(ctx, wait); err != nil {
			return err
		}
	}
}

// pause is how long to wait after the n-th failure in a row: twice as long each
// time, with a random part, so that mirrors don't all come back at once.
func pause(first time.Duration, n int, most time.Duration) time.Duration {
	d := min(first<<(n-1), most)
	return d/2 + rand.N(d/2+1) //nolint:gosec // no secret depends on it
}

// pause waits for a change or for d; after a change, for its burst to end.
func (l *Loop) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	case <-l.source.Changed():
	}
	timer.Reset(l.cfg.Settle)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

func (l *Loop) round(ctx context.Context) error {
	// First: it may change what of the other cluster is looked at.
	is, err := l.links.Link(ctx)
	if err != nil {
		return err
	}
	tables, known := l.source.Tables()
	if !known {
		return nil
	}
	var want []derive.Mirror
	var bad []derive.Problem
	var done Done
	if is.Cluster != "" {
		want, bad = derive.Mirrors(tables, is)
		done, err = l.sink.Apply(ctx, want)
	}
	members, alone := derive.Members(tables, is)
	joined, joinErr := l.sink.Join(ctx, members)
	done.add(joined)
	err = errors.Join(err, joinErr)
	bad = append(append(bad, alone...), done.Problems...)
	l.federated.Set(float64(len(members)))
	l.mirrored.Set(float64(len(want)))
	l.refused.Set(float64(len(bad)))
	for change, n := range map[string]int{"created": done.Created, "updated": done.Updated, "deleted": done.Deleted} {
		l.changes.WithLabelValues(change).Add(float64(n))
	}
	if done.Created+done.Updated+done.Deleted > 0 {
		slog.Info("services copied", obs.Cluster(is.Cluster), slog.Int("created", done.Created), slog.Int("updated", done.Updated),
			slog.Int("deleted", done.Deleted), obs.Count(len(want)))
	}
	for _, p := range bad {
		if !slices.Contains(l.problems, p) {
			slog.Warn("service cannot be copied", obs.Service(p.Service), obs.Reason(p.Reason))
		}
	}
	l.problems = bad
	return errors.Join(err, l.links.Report(ctx, link.Outcome{Mirrors: want, Members: members, Problems: bad}))
}
