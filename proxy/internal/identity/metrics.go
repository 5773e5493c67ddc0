package identity

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have Linkerd's names (spec/proxy.md §15.5).
type metrics struct {
	expires, refreshed prometheus.Gauge
	refreshes          *prometheus.CounterVec
	refused            *prometheus.CounterVec // Weft's own
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		expires: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "control_identity_cert_expiration_timestamp_seconds",
			Help: "Unix time at which the certificate in use expires.",
		}),
		refreshed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "control_identity_cert_refresh_timestamp_seconds",
			Help: "Unix time of the last renewal.",
		}),
		refreshes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "control_identity_cert_refreshes_total",
			Help: "Attempts to renew the certificate.",
		}, []string{"result"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_identity_peers_refused_total",
			Help: "Peers whose certificate proved nothing, by their side of the connection and the rule that it broke.",
		}, []string{"peer", "rule"}),
	}
	if reg != nil {
		reg.MustRegister(m.expires, m.refreshed, m.refreshes, m.refused)
	}
	return m
}

func (m *metrics) renewed(now, expires time.Time) {
	m.expires.Set(float64(expires.Unix()))
	m.refreshed.Set(float64(now.Unix()))
	m.refreshes.WithLabelValues("ok").Inc()
}

func (m *metrics) failed() { m.refreshes.WithLabelValues("error").Inc() }
