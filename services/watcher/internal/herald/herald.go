// Package herald tells people through Kubernetes events whether their pods are
// meshed: a warning at the workload whose pods should have a proxy and have none,
// and, as Linkerd's injector does, a word when a workload's pods come up meshed.
//
// It looks at all pods from time to time and stands apart from the watch path:
// whatever the events API does, the log does not notice. Only the leader writes.
package herald

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/watcher/internal/census"
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
	trouble string // the last failure that was logged

	unmeshed *prometheus.GaugeVec
	written  *prometheus.CounterVec
}

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
	for _, r := range census.Reasons {
		h.unmeshed.WithLabelValues(string(r)).Set(float64(result.Unmeshed[r]))
	}
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
		h.rest(ctx)
	}
}

func (h *Herald) rest(ctx context.Context) {
	t := time.NewTimer(h.cfg.Pace)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// tell writes one event, or renews it.
func (h *Herald) tell(ctx context.Context, n *census.Notice) bool {
	ctx, cancel := context.WithTimeout(ctx, sendLimit)
	defer cancel()
	now := time.Now()
	t := h.told[n.Key]
	e := h.event(n, now)
	err := error(nil)
	if t != nil && t.written {
		err = h.renew(ctx, e)
	} else if err = h.events.Create(ctx, e); apierrors.IsAlreadyExists(err) {
		err = nil // an earlier leader told it
	}
	result := "ok"
	if err != nil {
		result = "failed"
	}
	h.written.WithLabelValues(e.Reason, result).Inc()
	h.complain(err)
	if err == nil {
		h.told[n.Key] = &told{due: now.Add(again), written: true, looks: h.looks}
		return true
	}
	var answer apierrors.APIStatus
	if errors.As(err, &answer) && !retriable(err) {
		h.told[n.Key] = &told{due: now.Add(failed), looks: h.looks}
	}
	return false
}

// retriable: the same request may well go through at the next look.
func retriable(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}

// complain logs a failure, once for each kind of it in a row.
func (h *Herald) complain(err error) {
	if err == nil {
		h.trouble = ""
		return
	}
	kind := string(apierrors.ReasonForError(err))
	if kind == h.trouble {
		return
	}
	h.trouble = kind
	next := "the watcher goes on; see that the API server can be reached"
	if apierrors.IsForbidden(err) {
		next = "let the watcher's service account create and patch events"
	}
	h.cfg.Log.Warn("an event about injection could not be written", obs.Error(err), slog.String("next", next))
}

func (h *Herald) renew(ctx context.Context, e *corev1.Event) error {
	patch, err := json.Marshal(map[string]any{"count": e.Count, "lastTimestamp": e.LastTimestamp})
	if err != nil {
		return err
	}
	err = h.events.Patch(ctx, e.Namespace, e.Name, patch)
	if apierrors.IsNotFound(err) { // it has lived its hour
		err = h.events.Create(ctx, e)
	}
	return err
}

func (h *Herald) event(n *census.Notice, now time.Time) *corev1.Event {
	at := metav1.NewTime(now)
	e := &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: n.About.Namespace, Name: name(n)},
		InvolvedObject:      n.About,
		Type:                corev1.EventTypeNormal,
		Reason:              reasonInjected,
		Message:             n.Text,
		Source:              corev1.EventSource{Component: component},
		FirstTimestamp:      at,
		LastTimestamp:       at,
		Count:               int32(min(n.Pods, 1<<30)), //nolint:gosec // just bounded
		ReportingController: component,
		ReportingInstance:   h.cfg.Instance,
	}
	if n.Warning {
		e.Type, e.Reason = corev1.EventTypeWarning, reasonSkipped
	}
	return e
}

// name is the same in every process, so that a new leader's attempt to tell what
// was told meets the event that is there.
func name(n *census.Notice) string {
	const most = 253 - 1 - 2*len(census.Key{})
	about := n.About.Name
	if len(about) > most {
		about = strings.TrimRight(about[:most], "-.")
	}
	return about + "." + n.Key.String()
}
