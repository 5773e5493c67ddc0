package tell

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
)

// gathered counts lines, and finds a family.
func gathered(t *testing.T, d *Detail) (lines int, by map[string]*dto.MetricFamily) {
	t.Helper()
	all, err := d.Gather()
	if err != nil {
		t.Fatal(err)
	}
	by = map[string]*dto.MetricFamily{}
	for _, f := range all {
		by[f.GetName()] = f
		for _, m := range f.GetMetric() {
			lines++
			if h := m.GetHistogram(); h != nil {
				lines += len(h.GetBucket()) + 2 // +Inf, sum and count
			}
		}
	}
	return lines, by
}

// TestLevels is a proxy with 20 peers (complaint I1).
func TestLevels(t *testing.T) {
	m, reg := New(Config{}), prometheus.NewRegistry()
	reg.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for i := range 20 {
		for _, direction := range []string{"inbound", "outbound"} {
			l := Labels{{"direction", direction}, {"authority", fmt.Sprint("web-", i)}}
			h := m.HTTP(l)
			h.Start().End(End{Status: 200, Success: true}, 0)
			h.Start().End(End{Status: 500}, 0)
			m.TCP(l.With("peer", "src")).Start()
			m.TCP(l.With("peer", "dst")).Start()
			m.Counter(InboundHTTPErrors, l.With("error", "i/o")).Inc()
		}
	}
	d, err := NewDetail(reg, "default")
	if err != nil {
		t.Fatal(err)
	}
	usual, by := gathered(t, d)
	if len(by["request_total"].GetMetric()) != 40 || by["go_goroutines"] == nil || by["go_memstats_frees_total"] != nil {
		t.Errorf("default: %d lines", usual)
	}
	if err := d.Set("FULL"); err != nil {
		t.Fatal(err)
	}
	if full, by := gathered(t, d); full <= usual || by["go_memstats_frees_total"] == nil {
		t.Errorf("full: %d lines, default has %d", full, usual)
	}
	if err := d.Set("minimal"); err != nil {
		t.Fatal(err)
	}
	least, by := gathered(t, d)
	if least >= 60 {
		t.Errorf("minimal: %d lines, want less than 60", least)
	}
	for _, f := range by["response_total"].GetMetric() {
		if f.GetCounter().GetValue() != 20 {
			t.Errorf("minimal: %v", f)
		}
	}
	if h := by["response_latency_ms"].GetMetric()[0].GetHistogram(); h.GetSampleCount() != 40 || len(h.GetBucket()) != len(keptBuckets) {
		t.Errorf("minimal: %v", h)
	}
	if err := d.Set("huge"); err == nil || !strings.Contains(err.Error(), "minimal") || d.String() != "minimal" {
		t.Errorf("a level that is none: %v, %s", err, d)
	}
}
