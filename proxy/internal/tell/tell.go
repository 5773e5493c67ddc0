// Package tell counts what the proxy does, under Linkerd's metric names and
// labels (spec/proxy.md §15), so that dashboards written for Linkerd work.
//
// Handles are bound once, when a stack or a connection is built: a request only
// adds to atomics. The number of series of each family is capped; what comes
// after the cap is added to one series with the label overflow="true". A series
// unused for RetainIdle is dropped, and returns with its value if it is used again;
// those of families that do not fade are, if there are many.
package tell

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// few is how many series a family that does not fade keeps though they are idle.
const few = 200

// Config is how much is remembered. The zero value works.
type Config struct {
	RetainIdle time.Duration    // how long an unused series is kept; 0 means 10 minutes
	MaxSeries  int              // series per family; 0 means 5000
	Now        func() time.Time // nil means time.Now
}

// Metrics holds every series of the proxy. It is a prometheus.Collector; register
// it with the registry that /metrics serves. All methods may be called at once
// from any goroutine.
type Metrics struct {
	idle time.Duration
	max  int
	now  func() time.Time

	mu       sync.Mutex
	families map[string]*group
	before   map[*func()]struct{} // what Collect calls first
}

// Before has f called before each scrape, to set what is not counted as it
// happens, until stop is called. f must not wait.
func (m *Metrics) Before(f func()) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.before == nil {
		m.before = map[*func()]struct{}{}
	}
	m.before[&f] = struct{}{}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.before, &f)
	}
}

// group is the series of one family.
type group struct {
	family   Family
	series   map[string]*series
	overflow *series
}

// New returns an empty set of metrics.
func New(cfg Config) *Metrics {
	m := &Metrics{idle: cfg.RetainIdle, max: cfg.MaxSeries, now: cfg.Now, families: map[string]*group{}}
	if m.idle <= 0 {
		m.idle = 10 * time.Minute
	}
	if m.max <= 0 {
		m.max = 5000
	}
	if m.now == nil {
		m.now = time.Now
	}
	return m
}

// Counter binds a counter of the family. The same labels give the same series.
func (m *Metrics) Counter(f Family, l Labels) *Counter { return &Counter{m.bind(f, l)} }

// Gauge binds a gauge of the family.
func (m *Metrics) Gauge(f Family, l Labels) *Gauge { return &Gauge{m.bind(f, l)} }

// Histogram binds a histogram of the family.
func (m *Metrics) Histogram(f Family, l Labels) *Histogram { return &Histogram{m.bind(f, l)} }

func (m *Metrics) bind(f Family, l Labels) *series {
	l = l.sorted()
	key := l.key()
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.group(f)
	if s := g.series[key]; s != nil {
		s.used.Store(true)
		return s
	}
	if len(g.series) >= m.max {
		m.sweep(g, m.now())
	}
	if len(g.series) >= m.max {
		return g.spill(m)
	}
	s := newSeries(m, f, l, key)
	g.series[key] = s
	return s
}

// group is called with the lock held.
func (m *Metrics) group(f Family) *group {
	g := m.families[f.Name]
	if g == nil {
		g = &group{family: f, series: map[string]*series{}}
		m.families[f.Name] = g
	}
	return g
}

// spill returns the series of all that came after the cap.
func (g *group) spill(m *Metrics) *series {
	if g.overflow == nil {
		l := Labels{{"overflow", "true"}}
		g.overflow = newSeries(m, g.family, l, l.key())
		g.overflow.spilled = true
	}
	return g.overflow
}

// sweep drops what has not been used since the sweep that first found it unused
// and at least idle ago. It is called with the lock held.
func (m *Metrics) sweep(g *group, now time.Time) {
	for key, s := range g.series {
		if s.used.Swap(false) || s.held() {
			s.since = now
			continue
		}
		if now.Sub(s.since) >= m.idle {
			s.gone.Store(true)
			delete(g.series, key)
		}
	}
}

// Describe sends nothing: families have series with different label names, as
// Linkerd's have, which only an unchecked collector may.
func (m *Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect drops idle series and sends the others.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	now := m.now()
	m.mu.Lock()
	var first []*func()
	for f := range m.before {
		first = append(first, f)
	}
	m.mu.Unlock()
	for _, f := range first {
		(*f)()
	}
	m.mu.Lock()
	var all []*series
	for _, g := range m.families {
		if g.family.Fades || len(g.series) > few {
			m.sweep(g, now)
		}
		for _, s := range g.series {
			all = append(all, s)
		}
		if g.overflow != nil {
			all = append(all, g.overflow)
		}
	}
	m.mu.Unlock()
	for _, s := range all {
		out <- s.metric()
	}
}
