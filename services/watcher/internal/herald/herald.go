// Package herald tells people through Kubernetes events whether their pods are
// meshed: a warning at the workload whose pods should have a proxy and have none,
// and, as Linkerd's injector does, a word when a workload's pods come up meshed.
//
// It looks at all pods from time to time and stands apart from the watch path:
// whatever the events API does, the log does not notice. Only the leader writes.
package herald

import (
	"context"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/services/kit/pause"
	"github.com/weftmesh/weft/services/watcher/internal/census"
	"github.com/weftmesh/weft/services/watcher/internal/duty"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// component is who Linkerd's clients expect these events from.
const component = "linkerd-proxy-injector"

// Reasons of events, which are Linkerd's.
const (
	reasonInjected = "Injected"
	reasonSkipped  = "InjectionSkipped"
)

// Source has the objects to look at.
type Source interface {
	Pods() iter.Seq[*corev1.Pod]
	Get(id shape.ID) metav1.Object
	Synced() <-chan struct{}
}

// Events writes Kubernetes events.
type Events interface {
	Create(ctx context.Context, e *corev1.Event) error
	// Patch changes an event by a merge patch.
	Patch(ctx context.Context, namespace, name string, patch []byte) error
}

// Config sets up a Herald. The zero value is right but for Leading.
type Config struct {
	// Leading tells whether this process may write.
	Leading func() bool
	// Instance is this process's name in the events.
	Instance string
	// Every is how often pods are looked at; 0 means 10 s.
	Every time.Duration
	// Pace is the least time between two writes; 0 means 50 ms.
	Pace     time.Duration
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// What is kept and done at most.
const (
	mostTold  = 50_000 // keys kept: 12 bytes and a time each
	mostNews  = 200    // notices of one look; others wait for the next
	mostFails = 3      // failures in a row that end a look
	sendLimit = 5 * time.Second
	// again is when a warning that still holds is renewed: events live an hour.
	again = 30 * time.Minute
	// failed is when a notice that the API server refused is tried again.
	failed = 5 * time.Minute
)

// Herald looks and tells. Run's goroutine owns it.
type Herald struct {
	src    Source
	events Events
	cfg    Config

	told    map[census.Key]*told
	looks   uint64
	refused duty.Complaint

	unmeshed *prometheus.GaugeVec
	written  *prometheus.CounterVec
	total    atomic.Int64 // of the unmeshed at the last look
}

// Unmeshed is how many pods should have a proxy and had none at the last look.
func (h *Herald) Unmeshed() int { return int(h.total.Load()) }

// told is what became of one notice.
type told struct {
	due     time.Time // when to say it again
	written bool
	looks   uint64 // the last look that met it
}

// New makes a herald.
func New(src Source, events Events, cfg Config) *Herald {
	if cfg.Every <= 0 {
		cfg.Every = 10 * time.Second
	}
	if cfg.Pace <= 0 {
		cfg.Pace = 50 * time.Millisecond
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	h := &Herald{
		src: src, events: events, cfg: cfg, told: make(map[census.Key]*told),
		refused: duty.Complaint{Log: cfg.Log, What: "an event about injection could not be written", Right: "create and patch events"},
		unmeshed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weft_watcher_unmeshed_pods",
			Help: "Pods that an annotation wants to have a proxy and that have none, by the weightiest reason. Every watcher counts all of them.",
		}, []string{"reason"}),
		written: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_watcher_events_total",
			Help: "Kubernetes events about the injection of proxies, by the event's reason and whether the API server took it.",
		}, []string{"reason", "result"}),
	}
	for _, r := range census.Reasons {
		h.unmeshed.WithLabelValues(string(r))
	}
	for _, r := range []string{reasonInjected, reasonSkipped} {
		h.written.WithLabelValues(r, "ok")
		h.written.WithLabelValues(r, "failed")
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(h.unmeshed, h.written)
	}
	return h
}

// Run looks and tells until ctx ends.
func (h *Herald) Run(ctx context.Context) error {
	select {
	case <-h.src.Synced():
	case <-ctx.Done():
		return nil
	}
	tick := time.NewTicker(h.cfg.Every)
	defer tick.Stop()
	for {
		h.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (h *Herald) look(ctx context.Context) {
	h.looks++
	now := time.Now()
	leading := h.cfg.Leading()
	result := census.Take(h.src.Pods(), h.src.Get, now, mostNews, func(k census.Key, warning bool) bool {
		t := h.told[k]
		if t == nil {
			return leading && len(h.told) < mostTold
		}
		t.looks = h.looks
		return leading && !now.Before(t.due) && (warning || !t.written)
	})
	for k, t := range h.told {
		if t.looks != h.looks {
			delete(h.told, k)
		}
	}
	total := 0
	for _, r := range census.Reasons {
		h.unmeshed.WithLabelValues(string(r)).Set(float64(result.Unmeshed[r]))
		total += result.Unmeshed[r]
	}
	h.total.Store(int64(total))
	fails := 0
	for i := range result.Notices {
		if ctx.Err() != nil || !h.cfg.Leading() || fails == mostFails {
			return
		}
		if h.tell(ctx, &result.Notices[i]) {
			fails = 0
		} else {
			fails++
		}
		pause.For(ctx, h.cfg.Pace)
	}
}
