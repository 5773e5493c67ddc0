package serve

import "github.com/prometheus/client_golang/prometheus"

// metrics are counted without labels that a user's objects could multiply;
// where Linkerd has a metric of the same meaning its name is kept.
type metrics struct {
	propagation prometheus.Histogram
	derived     prometheus.Counter
	unusable    prometheus.Counter
	tokens      prometheus.Counter
	get         *callMetrics
	profile     *callMetrics
	workload    *callMetrics // GetProfile of an endpoint
}

// callMetrics are those of one streaming call.
type callMetrics struct {
	open     prometheus.Gauge
	updates  prometheus.Counter
	overflow prometheus.Counter
	ends     map[string]prometheus.Counter
}

func (c *callMetrics) ended(reason string) { c.ends[reason].Inc() }

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	ends := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weft_destination_streams_ended_total",
		Help: "Streams that ended, by call and reason.",
	}, []string{"call", "reason"})
	call := func(name, prefix, overflow string) *callMetrics {
		c := &callMetrics{
			open: prometheus.NewGauge(prometheus.GaugeOpts{
				Name: prefix + "_subscribers", Help: "Open streams of " + name + ".",
			}),
			updates:  counter(prefix+"_updates", "Messages sent on streams of "+name+"."),
			overflow: counter(overflow, "Streams of "+name+" that ended since their client did not read."),
			ends:     make(map[string]prometheus.Counter, 5),
		}
		for _, reason := range []string{endBlocked, endGone, endStop, endRefused, endMoved} {
			c.ends[reason] = ends.WithLabelValues(name, reason)
		}
		reg.MustRegister(c.open, c.updates, c.overflow)
		return c
	}
	m := &metrics{
		propagation: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "weft_destination_propagation_seconds",
			Help:    "From the moment the source saw a change to the moment it was written to a proxy's stream.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		derived:  counter("weft_destination_derivations_total", "Answers to Get that were worked out."),
		unusable: counter("weft_destination_addresses_unusable_total", "Meshed addresses left out of an answer since their proxy's ports are unreadable."),
		tokens:   counter("weft_destination_tokens_unreadable_total", "Context tokens that could not be read."),
		get:      call("Get", "endpoints", "endpoint_updates_queue_overflow"),
		profile:  call("GetProfile", "profile", "profile_updates_queue_overflow"),
		workload: call("GetProfile of an endpoint", "workload", "endpoint_profile_updates_queue_overflow"),
	}
	reg.MustRegister(ends, m.propagation, m.derived, m.unusable, m.tokens)
	return m
}
