// Package publish carries a source's objects into the log.
//
// One goroutine owns the state: it takes the names of changed objects, works out
// which rows changed, and appends them while this process leads the log. It is
// level-triggered: what could not be published stays to be published, and a new
// leadership begins with the whole truth, of which the log sends the difference.
package publish

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/pause"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
	"github.com/weftmesh/weft/services/watcher/internal/source"
	"github.com/weftmesh/weft/services/watcher/internal/state"
)

// Log is the writing end of the bus (bus.Writer).
type Log interface {
	Lead(ctx context.Context, truth []bus.Change) error
	Append(ctx context.Context, changes []bus.Change, observed time.Time) (seq uint64, err error)
	Resign()
	Leading() bool
}

// Copy is this process's copy of the log (bus.Reader).
type Copy interface {
	Status() bus.Status
	All() []bus.Change
}

// Config sets up a Publisher. The zero value, but for the registry, is right.
type Config struct {
	// Registry gets the metrics.
	Registry prometheus.Registerer
	// Log may be nil.
	Log *slog.Logger
	// Unleased says that no lease stands behind a leadership, as with a directory:
	// then a writer that is alive is left to lead, and this one stands by.
	Unleased bool
	// Backoff is the wait after a first failure to publish; it doubles up to 32
	// times that. 0 means 100 ms.
	Backoff time.Duration
	// Wrote is told of the rows that the log has taken; it must not block. nil
	// means nobody.
	Wrote func([]bus.Change)
	// Cluster is what the log says of the cluster it is of; nil means nothing.
	Cluster *busv1.Cluster
}

// What is taken in one step, and when steps wait for company (BUS.md section 3:
// at once when idle; coalesce up to 10 ms only above some 500 changes/s).
const (
	stepNames    = 2000
	busyRate     = 500 // changed objects a second
	coalesce     = 10 * time.Millisecond
	maxDoublings = 5
)

// Publisher is the watcher's middle.
type Publisher struct {
	src    source.Source
	log    Log
	copied Copy
	cfg    Config
	logger *slog.Logger
	tracer trace.Tracer
	meter  *meter

	terms chan term
	// leads and report are for other goroutines to read. leads is nil while
	// another process writes the log.
	leads  atomic.Pointer[term]
	report atomic.Pointer[Report]

	// Below: Run's goroutine only.
	state *state.State
	term  term
	led   bool
	fails int
	// Another writer has raised the epoch although the lease is held here: how
	// often lately, when this one led last, and when it may lead again.
	ousted    int
	ledAt     time.Time
	notBefore time.Time
	rival     bool
	// How much was taken since window, when the last step was, and whether that
	// is much.
	taken  int
	window time.Time
	last   time.Time
	busy   bool
}

// term is one time of leadership.
type term struct {
	ctx   context.Context //nolint:containedctx // a value handed over a channel: the leadership's life
	check func() error
}

func (t term) holds() bool { return t.ctx != nil && t.ctx.Err() == nil }

// New makes a publisher from a source to a log.
func New(src source.Source, log Log, copied Copy, cfg Config) *Publisher {
	if cfg.Backoff <= 0 {
		cfg.Backoff = 100 * time.Millisecond
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	p := &Publisher{
		src: src, log: log, copied: copied, cfg: cfg, logger: cfg.Log,
		tracer: otel.Tracer("github.com/weftmesh/weft/services/watcher"),
		terms:  make(chan term),
		state:  state.New(src),
	}
	if cfg.Wrote == nil {
		p.cfg.Wrote = func([]bus.Change) {}
	}
	if cfg.Cluster != nil {
		p.state.Fix(shape.ClusterRow(cfg.Cluster))
	}
	p.meter = newMeter(cfg.Registry, src, p)
	p.report.Store(new(Report))
	return p
}

// Leading tells whether this process writes the log.
func (p *Publisher) Leading() bool { return p.leads.Load() != nil }

// Term is the leadership under which this process writes the log, for who writes
// elsewhere under the same: a context that ends with it, and a check to make
// before each write. ok is false while another process leads.
func (p *Publisher) Term() (ctx context.Context, check func() error, ok bool) {
	t := p.leads.Load()
	if t == nil {
		return nil, nil, false
	}
	return t.ctx, t.check, true
}

// Elect takes part in the election once the list is complete, and says so to
// Run. The log is given up the moment that leadership ends.
func (p *Publisher) Elect(ctx context.Context) error {
	select {
	case <-p.src.Synced():
	case <-ctx.Done():
		return nil
	}
	return p.src.Elect(ctx, func(ctx context.Context, check func() error) {
		select {
		case p.terms <- term{ctx, check}:
		case <-ctx.Done():
			return
		}
		<-ctx.Done()
		p.log.Resign()
		p.leads.Store(nil)
	})
}

// Run applies changes until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	defer p.log.Resign()
	var retry <-chan time.Time
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case p.term = <-p.terms:
			p.led, p.fails = false, 0
		case <-p.src.Changes().Some():
			p.wait(ctx)
		case <-look.C:
			if !p.led || p.log.Leading() {
				continue
			}
			if !p.term.holds() { // Elect has given the log up
				p.led = false
				continue
			}
			p.oust()
		case <-retry:
		}
		retry = nil
		if err := p.step(ctx); err != nil && ctx.Err() == nil {
			d := p.backoff()
			p.logger.Warn("changes wait to be published", obs.Error(err), slog.Duration("retry_in", d), slog.Int("rows", p.state.Pending()))
			retry = time.After(d)
		} else if !p.led && p.term.holds() {
			retry = time.After(time.Until(p.notBefore))
		}
	}
}

// wait lets changes gather while there are many of them: then steps are at least
// 10 ms apart.
func (p *Publisher) wait(ctx context.Context) {
	idle := time.Since(p.last)
	if !p.busy || idle >= coalesce {
		return
	}
	pause.For(ctx, coalesce-idle)
}

func (p *Publisher) backoff() time.Duration {
	d := p.cfg.Backoff << min(p.fails, maxDoublings)
	p.fails++
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreads retries, keeps no secret
}

// step takes what has changed and brings the log up to date if it may.
func (p *Publisher) step(ctx context.Context) error {
	started := time.Now()
	changes := p.src.Changes().Take(stepNames)
	p.apply(changes)
	trouble := p.src.Trouble()
	if p.src.Changes().Len() == 0 { // what is hidden no more has been looked at
		p.state.See(started, trouble.Hides)
	}
	shaped := time.Now()
	p.measure(len(changes), started)
	p.tell(trouble)
	if !p.term.holds() {
		p.led = false
		p.state.Published() // the leader's business; a leadership begins with the truth
		return nil
	}
	if err := p.term.check(); err != nil {
		p.resign()
		return err
	}
	if !p.led {
		if started.Before(p.notBefore) {
			return nil
		}
		if p.cfg.Unleased && p.giveWay(started) {
			return nil
		}
		return p.lead()
	}
	return p.append(ctx, changes, started, shaped)
}

func (p *Publisher) apply(changes []source.Change) {
	for _, c := range changes {
		p.state.Apply(c.ID, c.Seen)
	}
	p.state.Settle()
}

func (p *Publisher) append(ctx context.Context, causes []source.Change, started, shaped time.Time) error {
	changes, observed := p.state.Changes()
	if len(changes) == 0 {
		return nil
	}
	ctx, done := p.trace(ctx, causes, observed, started, shaped)
	_, err := p.log.Append(ctx, changes, observed)
	done(err)
	if errors.Is(err, bus.ErrTooLarge) {
		// The others are written, and these will not get smaller by trying again.
		p.logger.Warn("rows left out of the log", obs.Error(err))
		err = nil
	}
	if err != nil {
		p.meter.failures.Inc()
		if errors.Is(err, bus.ErrNotLeading) {
			p.oust()
		}
		return err
	}
	p.state.Published()
	p.fails = 0
	p.meter.published(changes, observed, time.Now())
	p.cfg.Wrote(changes)
	return nil
}

// measure tells whether changes come fast enough to be worth gathering.
func (p *Publisher) measure(n int, now time.Time) {
	p.last = now
	p.taken += n
	if age := now.Sub(p.window); age >= time.Second {
		p.busy = float64(p.taken) > busyRate*age.Seconds()
		p.taken, p.window = 0, now
	} else if p.taken > busyRate {
		p.busy = true
	}
}
