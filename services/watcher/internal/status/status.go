package status

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/pause"
	"github.com/weftmesh/weft/services/watcher/internal/duty"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// Objects is what is written now, and the way to change it.
type Objects interface {
	Synced() <-chan struct{}
	Get(id shape.ID) metav1.Object
	All(kind shape.Kind) iter.Seq[metav1.Object]
	PatchStatus(ctx context.Context, id shape.ID, patch []byte) error
}

// Config sets up a Writer. Term, Log, Ask and Hear must be set.
type Config struct {
	// Term is the leadership under which this process may write.
	Term func() (ctx context.Context, check func() error, ok bool)
	// At is how far the log is written.
	At func() (epoch, seq uint64)
	// Ask asks policy, by who knows the log so far.
	Ask func(ctx context.Context, epoch, seq uint64) (bus.Wanted, error)
	// Hear gives presences until ctx ends.
	Hear func(ctx context.Context) iter.Seq2[*busv1.Presence, error]
	// Every is how often policy is asked without a cause; 0 means 10 s.
	Every time.Duration
	// Debounce is how long causes are collected; 0 means 100 ms.
	Debounce time.Duration
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Bounds of one round.
const (
	workers      = 4
	maxQueue     = 10_000 // as Linkerd has it
	patchTimeout = 5 * time.Second
	maxFails     = 10 // in a row that end a round
	// afterConflict is when an object that has changed in between is tried again:
	// the watch will have shown it by then.
	afterConflict = time.Second
	maxAsks       = 6 // of replicas that are behind, with waits that double from Debounce
)

// Writer asks and writes. Run's goroutine owns it, but for replicas and rounds.
type Writer struct {
	objects  Objects
	cfg      Config
	meter    *meter
	rounds   *duty.Rounds
	replicas replicas

	seen generations
	// patched is from which version each status was last written: while the watch
	// still shows that one, nothing new is known.
	patched map[shape.ID]string
	refused duty.Complaint
}

// New makes a writer.
func New(objects Objects, cfg Config) *Writer {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Writer{
		objects: objects, cfg: cfg, meter: newMeter(cfg.Registry), rounds: duty.NewRounds(cfg.Every, cfg.Debounce),
		seen: make(generations), patched: make(map[shape.ID]string),
		refused: duty.Complaint{Log: cfg.Log, What: "a status could not be written", Right: "patch the status of what it watches"},
	}
}

// Wrote says which rows the log has taken. It never blocks.
func (w *Writer) Wrote(changes []bus.Change) {
	for _, c := range changes {
		switch c.Table {
		// What a status may follow from.
		case busv1.Table_TABLE_ROUTES, busv1.Table_TABLE_EGRESS_NETWORKS, busv1.Table_TABLE_RATE_LIMITS,
			busv1.Table_TABLE_REFERENCE_GRANTS, busv1.Table_TABLE_SERVERS, busv1.Table_TABLE_SERVICES:
			w.rounds.Again()
			return
		}
	}
}

// Run works until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	select {
	case <-w.objects.Synced():
	case <-ctx.Done():
		return nil
	}
	var hearing sync.WaitGroup
	defer hearing.Wait()
	hearing.Go(func() {
		for p, err := range w.cfg.Hear(ctx) {
			if err != nil {
				if ctx.Err() == nil {
					w.cfg.Log.Warn("who serves policy is not heard; statuses don't say how many do", obs.Error(err))
				}
				return
			}
			w.replicas.hear(p, time.Now())
		}
	})
	w.rounds.Run(ctx, w.round)
	return nil
}

// round asks once and writes what differs.
func (w *Writer) round(ctx context.Context) {
	leading, check, ok := w.cfg.Term()
	if !ok {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(leading, cancel)()
	wanted, err := w.ask(ctx)
	if err != nil {
		return
	}
	w.write(ctx, check, w.jobs(wanted, time.Now()))
}

// ask asks until one answers that knows the log as far as it is written.
func (w *Writer) ask(ctx context.Context) (bus.Wanted, error) {
	wait := w.rounds.Debounce()
	for try := 1; ; try++ {
		epoch, seq := w.cfg.At()
		wanted, err := w.cfg.Ask(ctx, epoch, seq)
		switch {
		case err == nil:
			w.meter.asks.WithLabelValues(resultOK).Inc()
			return wanted, nil
		case ctx.Err() != nil:
			return bus.Wanted{}, err
		case errors.Is(err, bus.ErrBehind):
			w.meter.asks.WithLabelValues(resultBehind).Inc()
			if try == maxAsks || !pause.For(ctx, wait) {
				return bus.Wanted{}, err
			}
			wait *= 2
		case errors.Is(err, bus.ErrNoPeers):
			w.meter.asks.WithLabelValues(resultNobody).Inc()
			return bus.Wanted{}, err
		default:
			w.meter.asks.WithLabelValues(resultFailed).Inc()
			w.cfg.Log.Warn("policy could not be asked for statuses", obs.Error(err))
			return bus.Wanted{}, err
		}
	}
}
