package publish

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
	"github.com/weftmesh/weft/services/watcher/internal/source"
)

// meter holds the watcher's metrics. Labels are kinds and tables, both bounded.
type meter struct {
	changes  map[busv1.Table]prometheus.Counter
	delay    prometheus.Histogram
	failures prometheus.Counter
	ousted   prometheus.Counter
}

func newMeter(reg prometheus.Registerer, src source.Source, p *Publisher) *meter {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	changes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weft_watcher_changes_total",
		Help: "Rows put or removed, as given to the log, by table.",
	}, []string{"table"})
	m := &meter{
		changes: make(map[busv1.Table]prometheus.Counter, len(bus.Tables)),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "weft_watcher_event_to_publish_seconds",
			Help:    "Time from the oldest event of a batch to the batch being in the log.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weft_watcher_publish_failures_total",
			Help: "Batches that the log did not take; they are tried again.",
		}),
		ousted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weft_watcher_ousted_total",
			Help: "Times that another writer took the log while the lease was held here.",
		}),
	}
	for _, t := range bus.Tables {
		m.changes[t.Table] = changes.WithLabelValues(t.Name)
	}
	leader := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weft_watcher_leader",
		Help: "1 while this process writes the log.",
	}, func() float64 {
		if p.Leading() {
			return 1
		}
		return 0
	})
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weft_watcher_waiting_objects",
		Help: "Objects that changed and have not been looked at yet.",
	}, func() float64 { return float64(src.Changes().Len()) })
	skipped := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weft_watcher_skipped_objects",
		Help: "Objects and files that are skipped, in part or whole; weft status names them.",
	}, func() float64 { return float64(p.Report().Total) })
	reg.MustRegister(changes, m.delay, m.failures, m.ousted, leader, waiting, skipped, &objects{p})
	return m
}

func (m *meter) published(changes []bus.Change, observed, now time.Time) {
	for _, c := range changes {
		m.changes[c.Table].Inc()
	}
	if !observed.IsZero() {
		m.delay.Observe(now.Sub(observed).Seconds())
	}
}

// objects shows the counts of the newest report.
type objects struct{ p *Publisher }

var objectsDesc = prometheus.NewDesc("weft_watcher_objects", "Objects that are known, by kind.", []string{"kind"}, nil)

// Describe is prometheus.Collector's.
func (*objects) Describe(ch chan<- *prometheus.Desc) { ch <- objectsDesc }

// Collect is prometheus.Collector's.
func (o *objects) Collect(ch chan<- prometheus.Metric) {
	counts := o.p.Report().Objects
	for _, k := range shape.Kinds {
		ch <- prometheus.MustNewConstMetric(objectsDesc, prometheus.GaugeValue, float64(counts[k.Kind]), string(k.Kind))
	}
}
