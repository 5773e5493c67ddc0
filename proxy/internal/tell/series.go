package tell

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Counter only grows.
type Counter struct{ s *series }

// Add adds n.
func (c *Counter) Add(n uint64) { c.s.live().count.Add(int64(n)) }

// Inc adds one.
func (c *Counter) Inc() { c.Add(1) }

// Value is what the counter has counted. Looking at it is no use that keeps it from
// being dropped as idle.
func (c *Counter) Value() uint64 { return uint64(c.s.current().count.Load()) }

// Same reports whether both count in one series.
func (c *Counter) Same(o *Counter) bool { return c.s.current() == o.s.current() }

// A Gauge goes up and down; it is never dropped while it is not zero.
type Gauge struct{ s *series }

// Add adds n, which may be negative.
func (g *Gauge) Add(n int64) { g.s.live().count.Add(n) }

// Set replaces the value.
func (g *Gauge) Set(n int64) { g.s.live().count.Store(n) }

// A Histogram counts observations by size.
type Histogram struct{ s *series }

// None adds n observations of 0.
func (h *Histogram) None(n uint64) { h.s.live().buckets[0].Add(n) }

// Observe adds one observation, in the family's unit.
func (h *Histogram) Observe(v float64) {
	s := h.s.live()
	i := 0
	for i < len(s.family.Buckets) && v > s.family.Buckets[i] {
		i++
	}
	s.buckets[i].Add(1)
	for {
		old := s.sum.Load()
		if s.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

// series is one line (or, for a histogram, one set of lines) of /metrics.
type series struct {
	m      *Metrics
	family Family
	labels Labels
	key    string
	desc   *prometheus.Desc
	values []string

	count   atomic.Int64
	buckets []atomic.Uint64 // one more than the family's, for +Inf
	sum     atomic.Uint64   // bits of a float64

	used  atomic.Bool            // since the last sweep
	gone  atomic.Bool            // dropped by a sweep
	heir  atomic.Pointer[series] // took the key while this one was gone
	since time.Time              // first seen unused; guarded by m.mu

	tcp     atomic.Pointer[TCP] // of a family of connections: all of them with these labels
	spilled bool                // it has the labels of none
}

func newSeries(m *Metrics, f Family, l Labels, key string) *series {
	s := &series{m: m, family: f, labels: l, key: key, since: m.now()}
	s.used.Store(true)
	names := make([]string, len(l))
	s.values = make([]string, len(l))
	for i, label := range l {
		names[i], s.values[i] = label.Name, label.Value
	}
	s.desc = prometheus.NewDesc(f.Name, f.Help, names, nil)
	if f.Kind == KindHistogram {
		s.buckets = make([]atomic.Uint64, len(f.Buckets)+1)
	}
	return s
}

// live returns the series to add to: this one, unless it was dropped as idle and
// another now has its key.
func (s *series) live() *series {
	if !s.used.Load() {
		s.used.Store(true)
	}
	if !s.gone.Load() {
		return s
	}
	if heir := s.heir.Load(); heir != nil {
		return heir.live()
	}
	return s.m.revive(s)
}

// current is the series that counts for this one.
func (s *series) current() *series {
	for {
		heir := s.heir.Load()
		if !s.gone.Load() || heir == nil {
			return s
		}
		s = heir
	}
}

// revive puts a dropped series back, or finds the one that replaced it.
func (m *Metrics) revive(s *series) *series {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !s.gone.Load() {
		return s
	}
	g := m.group(s.family)
	if other := g.series[s.key]; other != nil {
		s.heir.Store(other)
		return other
	}
	if len(g.series) >= m.max {
		return g.spill(m)
	}
	s.gone.Store(false)
	g.series[s.key] = s
	return s
}

// held reports whether dropping the series would lose track of something open.
func (s *series) held() bool { return s.family.Kind == KindGauge && s.count.Load() != 0 }

func (s *series) metric() prometheus.Metric {
	if s.family.Kind == KindHistogram {
		var total uint64
		at := make(map[float64]uint64, len(s.family.Buckets))
		for i, bound := range s.family.Buckets {
			total += s.buckets[i].Load()
			at[bound] = total
		}
		total += s.buckets[len(s.family.Buckets)].Load()
		return prometheus.MustNewConstHistogram(s.desc, total, math.Float64frombits(s.sum.Load()), at, s.values...)
	}
	kind := prometheus.CounterValue
	if s.family.Kind == KindGauge {
		kind = prometheus.GaugeValue
	}
	return prometheus.MustNewConstMetric(s.desc, kind, float64(s.count.Load()), s.values...)
}
