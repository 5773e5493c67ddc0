package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/limits"
)

// DefaultGrace is the time all parts together have to stop. Kubernetes kills a
// pod 30 s after asking it to stop, so this leaves room for a preStop hook.
const DefaultGrace = 20 * time.Second

// Service is a process being built: build adds parts, checks and metrics to it.
// It is for one goroutine until build has returned; NotReady is for any.
type Service struct {
	name    string
	grace   time.Duration
	parts   []*part
	checks  []check
	metrics *prometheus.Registry
	limits  limits.Plan
	started atomic.Bool // build has returned and every part was started
	ending  *ending
}

type check struct {
	name string
	ask  func() error
}

func newService(name string) *Service {
	reg := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weft_build_info",
		Help: "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{
			"service": name, "version": build.Version(), "commit": build.Commit(),
		},
	})
	info.Set(1)
	reg.MustRegister(info, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Service{name: name, grace: DefaultGrace, metrics: reg, ending: &ending{}}
}

// Name is the service's name, as given to Main.
func (s *Service) Name() string { return s.name }

// Metrics is the registry that the admin server shows.
func (s *Service) Metrics() *prometheus.Registry { return s.metrics }

// Limits tells what Main changed of the Go runtime's limits.
func (s *Service) Limits() limits.Plan { return s.limits }

// SetGrace changes the time the parts have to stop.
func (s *Service) SetGrace(d time.Duration) { s.grace = d }

// Part adds a part. It starts after the ones added before it and is asked to
// stop, by the end of its context, when those added after it have stopped. A
// part that returns an error ends the process with 1; one that returns nil is
// done, and the others go on.
func (s *Service) Part(name string, run func(context.Context) error) {
	s.parts = append(s.parts, &part{name: name, run: run, done: make(chan struct{})})
}

// Ready adds a condition. The process is ready when it has started, is not
// stopping, and every check returns nil. Checks are asked often: they must
// answer from memory.
func (s *Service) Ready(name string, ask func() error) {
	s.checks = append(s.checks, check{name: name, ask: ask})
}

// Unready is one reason why the process is not ready.
type Unready struct {
	Name string
	Err  error
}

// NotReady lists what keeps the process from being ready; nothing means ready.
func (s *Service) NotReady() []Unready {
	if !s.started.Load() {
		return []Unready{{Name: s.name, Err: errors.New("starting")}}
	}
	var reasons []Unready
	if s.ending.begun() {
		reasons = append(reasons, Unready{Name: s.name, Err: errors.New("stopping")})
	}
	for _, c := range s.checks {
		if err := c.ask(); err != nil {
			reasons = append(reasons, Unready{Name: c.name, Err: err})
		}
	}
	return reasons
}

// part is one long-running piece of a process.
type part struct {
	name   string
	run    func(context.Context) error
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when run has returned
	err    error         // what it returned; read after done
}

// start runs the part in its own goroutine. A panic becomes an error, so that
// the other parts are stopped in order and the cause is logged once.
func (p *part) start(ctx context.Context, failed context.CancelCauseFunc) {
	ctx, p.cancel = context.WithCancelCause(ctx)
	go func() {
		defer close(p.done)
		defer func() {
			if r := recover(); r != nil {
				p.err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
			}
			if p.err == nil {
				return
			}
			if ctx.Err() != nil && errors.Is(p.err, context.Cause(ctx)) {
				p.err = nil // it returned because it was asked to
				return
			}
			p.err = fmt.Errorf("%s: %w", p.name, p.err)
			if ctx.Err() != nil {
				slog.Warn("part stopped with an error", "part", p.name, "error", p.err.Error())
				p.err = nil
				return
			}
			failed(p.err)
		}()
		p.err = p.run(ctx)
		if errors.Is(p.err, context.Canceled) && ctx.Err() != nil {
			p.err = nil
		}
	}()
}

// run starts the parts, waits for the end, and stops them in reverse.
func (s *Service) run(ctx context.Context, stop context.CancelCauseFunc) error {
	// The parts outlive ctx: each ends when its turn to stop comes.
	base := context.WithValue(context.WithoutCancel(ctx), endingKey{}, s.ending)
	for _, p := range s.parts {
		p.start(base, stop)
	}
	s.started.Store(true)
	slog.Info("started", "parts", len(s.parts))
	go func() {
		for _, p := range s.parts {
			<-p.done
		}
		stop(errStopped) // every part is done
	}()
	<-ctx.Done()
	err := context.Cause(ctx)
	if errors.Is(err, errStopped) {
		err = nil
	}
	s.ending.begin(time.Now().Add(s.grace))
	late := s.stop()
	for _, p := range s.parts {
		select {
		case <-p.done:
			if p.err != nil && !errors.Is(err, p.err) {
				err = errors.Join(err, p.err) // it failed before its turn to stop
			}
		default:
		}
	}
	return errors.Join(err, late)
}

// lastMoment is for the parts whose turn to stop had not come when the grace
// was over: enough to close a socket, not to wait for anybody.
const lastMoment = 250 * time.Millisecond

// stop ends the parts, last first. When the grace is over it asks all that are
// left at once and names those that still run.
func (s *Service) stop() error {
	over := time.NewTimer(s.grace)
	defer over.Stop()
	left := s.parts
	for len(left) > 0 {
		p := left[len(left)-1]
		p.cancel(errStopped)
		select {
		case <-p.done:
			left = left[:len(left)-1]
			continue
		case <-over.C:
		}
		break
	}
	if len(left) == 0 {
		return nil
	}
	for _, p := range left {
		p.cancel(errStopped)
	}
	moment := time.NewTimer(lastMoment)
	defer moment.Stop()
	var late []string
	for i, p := range left {
		if i == len(left)-1 {
			late = append(late, p.name) // the one that used up the grace
			break
		}
		select {
		case <-p.done:
		case <-moment.C:
			moment.Reset(0) // nobody else gets a moment of their own
			late = append(late, p.name)
		}
	}
	return fmt.Errorf("stopping: still running after %s: %s", s.grace, strings.Join(late, ", "))
}
