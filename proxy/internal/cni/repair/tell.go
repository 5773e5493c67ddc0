package repair

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/weftmesh/weft/proxy/internal/cni/apiserver"
)

// Metrics have the names of Linkerd's repair controller.
type Metrics struct {
	overflow, deleted, deleteErrors, deleteTimeouts, eventErrors, eventTimeouts, kept, watchErrors prometheus.Counter

	deleteSeconds, eventSeconds prometheus.Histogram
}

// NewMetrics registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	const prefix = "linkerd_cni_repair_controller_"
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
	}
	seconds := func(name, help string) prometheus.Histogram {
		return f.NewHistogram(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: prometheus.DefBuckets})
	}
	return &Metrics{
		overflow:       counter("queue_overflow_total", "Incremented whenever the event processing queue overflows"),
		deleted:        counter("pods_deleted_total", "Number of pods deleted by the controller"),
		deleteErrors:   counter("pods_delete_errors_total", "Incremented whenever the pod deletion call errors out"),
		deleteTimeouts: counter("pods_delete_timeout_total", "Incremented whenever the pod deletion call times out"),
		eventErrors:    counter("events_publish_errors_total", "Incremented whenever the event publishing call errors out"),
		eventTimeouts:  counter("events_publish_timeouts_total", "Incremented whenever the event publishing call times out"),
		kept:           counter("pods_kept_total", "Pods that are not redirected and that nothing would create again"),
		watchErrors:    counter("watch_errors_total", "Watches of the node's pods that ended in an error"),
		deleteSeconds:  seconds("pods_delete_latency_seconds", "Pod deletion latency distribution"),
		eventSeconds:   seconds("events_publish_latency_seconds", "Events publish latency distribution"),
	}
}

// eventName is unique, as kubectl's other events are named. The API server refuses
// a generateName that ends in a dot, and names above 253 bytes.
func eventName(pod string, at time.Time) string {
	const long = 253 - 1 - 16
	return strings.TrimRight(pod[:min(len(pod), long)], "-.") + "." + strconv.FormatInt(at.UnixNano(), 16)
}

// event puts a line under the pod, where `kubectl describe` shows it.
func (r *Repairer) event(ctx context.Context, p *apiserver.Pod, kind, action, note string) {
	now := time.Now
	if r.Now != nil {
		now = r.Now
	}
	at := now()
	once, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	start := time.Now()
	err := r.API.Create(once, "/apis/events.k8s.io/v1/namespaces/"+url.PathEscape(p.Metadata.Namespace)+"/events", map[string]any{
		"apiVersion": "events.k8s.io/v1", "kind": "Event",
		"metadata":            map[string]any{"namespace": p.Metadata.Namespace, "name": eventName(p.Metadata.Name, at)},
		"eventTime":           at.UTC().Format("2006-01-02T15:04:05.000000Z07:00"),
		"reportingController": component, "reportingInstance": r.Name,
		"type": kind, "reason": reason, "action": action, "note": note,
		"regarding": map[string]any{
			"apiVersion": "v1", "kind": "Pod", "namespace": p.Metadata.Namespace, "name": p.Metadata.Name, "uid": p.Metadata.UID,
		},
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		r.Metrics.eventTimeouts.Inc()
	case err != nil:
		r.Metrics.eventErrors.Inc()
	default:
		r.Metrics.eventSeconds.Observe(time.Since(start).Seconds())
		return
	}
	r.Log.Warn("an event could not be published", "namespace", p.Metadata.Namespace, "pod", p.Metadata.Name, "error", err)
}
