package bus

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// metrics are the log's numbers for one cluster. Handles are bound once.
type metrics struct {
	epoch, seq, stale, age, synced, heldBytes, rowBytes prometheus.Gauge
	gaps, duplicates, oldEpoch, malformed, overflows    prometheus.Counter
	appended, unsent, sentMessages, sentBytes           prometheus.Counter
	served                                              *prometheus.CounterVec
	repairs, failures, mismatches                       *prometheus.CounterVec
	rows                                                *prometheus.GaugeVec
	lag, repair                                         prometheus.Histogram
}

// registrar is a transport that knows where metrics go.
type registrar interface{ Registerer() prometheus.Registerer }

func registererOf(t Transport, own prometheus.Registerer) prometheus.Registerer {
	if own != nil {
		return own
	}
	if r, ok := t.(registrar); ok && r.Registerer() != nil {
		return r.Registerer()
	}
	return prometheus.NewRegistry()
}

// register gives the collector that is registered under that name: a process
// with two buses (mirror) has one set of metrics with two values of cluster.
func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg == nil {
		return c
	}
	if err := reg.Register(c); err != nil {
		if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
			if old, ok := there.ExistingCollector.(C); ok {
				return old
			}
		}
	}
	return c
}

// Applying takes microseconds to seconds; propagation budgets are in
// milliseconds.
var lagBuckets = []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30}

func newMetrics(reg prometheus.Registerer, cluster string) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weft_bus_" + name, Help: help}, []string{"cluster"})).WithLabelValues(cluster)
	}
	counter := func(name, help string) prometheus.Counter {
		return register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weft_bus_" + name, Help: help}, []string{"cluster"})).WithLabelValues(cluster)
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weft_bus_" + name, Help: help}, []string{"cluster", label})).
			MustCurryWith(prometheus.Labels{"cluster": cluster})
	}
	histogram := func(name, help string) prometheus.Histogram {
		v := register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "weft_bus_" + name, Help: help, Buckets: lagBuckets}, []string{"cluster"}))
		return v.WithLabelValues(cluster).(prometheus.Histogram)
	}
	m := &metrics{
		epoch:        gauge("epoch", "Epoch of the log that this process has read to."),
		seq:          gauge("seq", "Sequence of the log that this process has read to."),
		stale:        gauge("stale", "1 while the writer has not been heard for longer than the limit."),
		age:          gauge("age_seconds", "How long ago the writer was last heard, while stale; 0 while live."),
		synced:       gauge("synced", "1 once the copy of the log is complete."),
		heldBytes:    gauge("held_bytes", "Bytes of log messages that wait for a repair."),
		rowBytes:     gauge("row_bytes", "Bytes of all keys and rows held."),
		gaps:         counter("gaps_total", "Times that messages of the log were found missing."),
		duplicates:   counter("duplicates_total", "Log messages dropped because they were applied before."),
		oldEpoch:     counter("old_epoch_total", "Log messages dropped because their epoch had ended."),
		malformed:    counter("malformed_total", "Messages dropped because they could not be read."),
		overflows:    counter("overflows_total", "Times that the reader's own queue was full and dropped."),
		appended:     counter("cuts_total", "Cuts written to the log by this process."),
		unsent:       counter("unsent_messages_total", "Log messages not sent for want of a connection."),
		sentMessages: counter("sent_messages_total", "Log messages sent."),
		sentBytes:    counter("sent_bytes_total", "Bytes of log messages sent, headers not counted."),
		served:       counters("answers_total", "Answers to peers that asked.", "kind"),
		repairs:      counters("repairs_total", "Repairs of the copy, by what was needed.", "kind"),
		failures:     counters("repair_failures_total", "Repairs that did not succeed and were tried again.", "reason"),
		mismatches:   counters("digest_mismatches_total", "Times that a table differed from the writer's.", "table"),
		rows: register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weft_bus_rows", Help: "Rows held."}, []string{"cluster", "table"})).
			MustCurryWith(prometheus.Labels{"cluster": cluster}),
		lag:    histogram("apply_lag_seconds", "Time from the source's change to its being applied here."),
		repair: histogram("repair_seconds", "Time that a repair took."),
	}
	// A series that begins at its first event hides it from rate().
	for _, t := range Tables {
		m.mismatches.WithLabelValues(t.Name)
		m.rows.WithLabelValues(t.Name)
	}
	for _, kind := range []string{"nothing", "range", "snapshot", "patch"} {
		m.repairs.WithLabelValues(kind)
	}
	for _, reason := range []string{"start", "gap", "digest", "resume"} {
		m.failures.WithLabelValues(reason)
	}
	return m
}

func connectionMetrics(reg prometheus.Registerer, cluster string) (slow prometheus.Counter, up prometheus.Gauge) {
	slow = register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weft_bus_slow_consumer_total",
		Help: "Times that NATS dropped messages because this process did not keep up.",
	}, []string{"cluster"})).WithLabelValues(cluster)
	up = register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weft_bus_connected",
		Help: "1 while there is a connection to a NATS server.",
	}, []string{"cluster"})).WithLabelValues(cluster)
	return slow, up
}

// position records where the copy stands. The store's lock is held.
func (m *metrics) position(at position, s *store) {
	m.epoch.Set(float64(at.epoch))
	m.seq.Set(float64(at.seq))
	m.rowBytes.Set(float64(s.bytes))
	if s.synced {
		m.synced.Set(1)
	}
}

// countRows is called with each beacon, not with each cut.
func (m *metrics) countRows(s *store) {
	other := 0
	for t, r := range s.tables {
		if name := tableName(t); name != unknownTable {
			m.rows.WithLabelValues(name).Set(float64(len(r.byKey)))
		} else {
			other += len(r.byKey)
		}
	}
	if other > 0 {
		m.rows.WithLabelValues(unknownTable).Set(float64(other))
	}
}

func (m *metrics) sent(n int) {
	m.sentMessages.Inc()
	m.sentBytes.Add(float64(n))
}

func (m *metrics) mismatch(tables []busv1.Table) {
	for _, t := range tables {
		m.mismatches.WithLabelValues(tableName(t)).Inc()
	}
}
