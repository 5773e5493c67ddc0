package serve

import "github.com/prometheus/client_golang/prometheus"

// The APIs, as metric labels and span names.
const (
	apiInbound  = "inbound"
	apiOutbound = "outbound"
	apiRoutes   = "routes"
)

type metrics struct {
	propagation *prometheus.HistogramVec
	streams     *prometheus.GaugeVec
	answers     *prometheus.CounterVec
	blocked     prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		propagation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weft_policy_propagation_seconds",
			Help: "Time from observing a change in Kubernetes to sending it to a proxy.",
			// From a quiet loopback to a relist after an outage.
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"api"}),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weft_policy_streams",
			Help: "Open streams.",
		}, []string{"api"}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_policy_answers_derived_total",
			Help: "Answers that were made; the rest of what was asked was shared.",
		}, []string{"api"}),
		blocked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weft_policy_streams_blocked_total",
			Help: "Streams that were ended because their client did not read.",
		}),
	}
	reg.MustRegister(m.propagation, m.streams, m.answers, m.blocked)
	for _, api := range []string{apiInbound, apiOutbound, apiRoutes} {
		m.streams.WithLabelValues(api)
		m.answers.WithLabelValues(api)
	}
	return m
}
