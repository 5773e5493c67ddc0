package status

import "github.com/prometheus/client_golang/prometheus"

// meter holds Linkerd's metrics of the writing of statuses.
type meter struct {
	patches, errors, timeouts, enqueued, dequeued, dropped, overflows prometheus.Counter
	duration                                                          prometheus.Histogram
	asks                                                              *prometheus.CounterVec
}

// results are what may become of a question to policy.
const (
	resultOK     = "ok"
	resultNobody = "nobody"
	resultBehind = "behind"
	resultFailed = "failed"
)

func newMeter(reg prometheus.Registerer) *meter {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "resource_status_" + name, Help: help})
	}
	m := &meter{
		patches:   counter("patches_total", "Statuses that were written."),
		errors:    counter("patch_api_errors_total", "Statuses that the API server did not take."),
		timeouts:  counter("patch_timeouts_total", "Statuses for which the API server did not answer in time."),
		enqueued:  counter("patch_enqueues_total", "Statuses that were put into the queue."),
		dequeued:  counter("patch_dequeues_total", "Statuses that were taken from the queue."),
		dropped:   counter("patch_drops_total", "Statuses that were thrown away since another process leads, or the API server takes none."),
		overflows: counter("patch_enqueue_overflows_total", "Statuses that had no place in the queue and wait for the next round."),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "resource_status_patch_duration_seconds", Help: "Time in which a status was written.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
		asks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_watcher_status_asks_total", Help: "Questions to policy which statuses are wanted, by what became of them.",
		}, []string{"result"}),
	}
	for _, result := range []string{resultOK, resultNobody, resultBehind, resultFailed} {
		m.asks.WithLabelValues(result)
	}
	if reg != nil {
		reg.MustRegister(m.patches, m.errors, m.timeouts, m.enqueued, m.dequeued, m.dropped, m.overflows, m.duration, m.asks)
	}
	return m
}
