package tell

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// Detail is how much of what is counted a scrape sees. Counting is the same at
// every level, so that it can be changed at any time:
//
//	minimal   what a golden signal needs, summed over peers: under 60 lines
//	default   everything that Linkerd has, and a little of the Go runtime
//	full      everything
type Detail struct {
	from  prometheus.Gatherer
	level atomic.Pointer[string]
}

// Levels are the values that a Detail may have.
var Levels = []string{"minimal", "default", "full"}

// NewDetail shows what from has at a level.
func NewDetail(from prometheus.Gatherer, level string) (*Detail, error) {
	d := &Detail{from: from}
	return d, d.Set(level)
}

// Set changes the level; one that is none changes nothing.
func (d *Detail) Set(level string) error {
	level = strings.ToLower(strings.TrimSpace(level))
	if !slices.Contains(Levels, level) {
		return fmt.Errorf("reading the level of metrics: want one of %s, got %q", strings.Join(Levels, ", "), level)
	}
	d.level.Store(&level)
	return nil
}

// String is the level in use.
func (d *Detail) String() string { return *d.level.Load() }

// Gather is prometheus.Gatherer's.
func (d *Detail) Gather() ([]*dto.MetricFamily, error) {
	all, err := d.from.Gather()
	switch d.String() {
	case "minimal":
		all = minimal(all)
	case "default":
		all = slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
			return strings.HasPrefix(f.GetName(), "go_") && !slices.Contains(goKept, f.GetName())
		})
	}
	return all, err
}

var goKept = []string{"go_info", "go_goroutines", "go_threads", "go_memstats_heap_inuse_bytes", "go_gc_duration_seconds"}

// kept are the families of the minimal level, with the labels that stay.
var kept = map[string][]string{
	"request_total":                                      {"direction"},
	"response_total":                                     {"direction", "classification"},
	"response_latency_ms":                                {"direction"},
	"tcp_open_connections":                               {"direction", "peer"},
	"tcp_read_bytes_total":                               {"direction", "peer"},
	"tcp_write_bytes_total":                              {"direction", "peer"},
	"inbound_http_authz_deny_total":                      nil,
	"inbound_tcp_authz_deny_total":                       nil,
	"inbound_http_errors_total":                          nil,
	"inbound_tcp_errors_total":                           nil,
	"outbound_http_errors_total":                         nil,
	"outbound_tcp_errors_total":                          nil,
	"proxy_build_info":                                   {"version"},
	"process_cpu_seconds_total":                          nil,
	"process_resident_memory_bytes":                      nil,
	"process_open_fds":                                   nil,
	"process_start_time_seconds":                         nil,
	"weft_propagation_seconds":                           nil,
	"inbound_http_local_ratelimit_total":                 nil,
	"control_identity_cert_expiration_timestamp_seconds": nil,
}

// keptBuckets are the bounds of histograms at the minimal level.
var keptBuckets = []float64{10, 100, 1000, 10000}

// minimal sums what is left when labels go.
func minimal(all []*dto.MetricFamily) []*dto.MetricFamily {
	var out []*dto.MetricFamily
	for _, f := range all {
		labels, ok := kept[f.GetName()]
		if !ok {
			continue
		}
		sums := map[string]*dto.Metric{}
		var order []string
		for _, m := range f.GetMetric() {
			var left []*dto.LabelPair
			var key strings.Builder
			for _, l := range m.GetLabel() {
				if slices.Contains(labels, l.GetName()) {
					left = append(left, l)
					fmt.Fprintf(&key, "%s=%q,", l.GetName(), l.GetValue())
				}
			}
			sum := sums[key.String()]
			if sum == nil {
				sum = &dto.Metric{Label: left}
				sums[key.String()] = sum
				order = append(order, key.String())
			}
			add(sum, m)
		}
		slices.Sort(order)
		shown := &dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type}
		for _, key := range order {
			shown.Metric = append(shown.Metric, sums[key])
		}
		out = append(out, shown)
	}
	return out
}

func add(sum, m *dto.Metric) {
	switch {
	case m.Counter != nil:
		sum.Counter = &dto.Counter{Value: new(sum.GetCounter().GetValue() + m.GetCounter().GetValue())}
	case m.Gauge != nil:
		sum.Gauge = &dto.Gauge{Value: new(sum.GetGauge().GetValue() + m.GetGauge().GetValue())}
	case m.Untyped != nil:
		sum.Untyped = &dto.Untyped{Value: new(sum.GetUntyped().GetValue() + m.GetUntyped().GetValue())}
	case m.Histogram != nil:
		addHistogram(sum, m.GetHistogram())
	}
}

func addHistogram(sum *dto.Metric, h *dto.Histogram) {
	if sum.Histogram == nil {
		sum.Histogram = &dto.Histogram{SampleCount: proto.Uint64(0), SampleSum: proto.Float64(0)}
	}
	s := sum.Histogram
	s.SampleCount = new(s.GetSampleCount() + h.GetSampleCount())
	s.SampleSum = new(s.GetSampleSum() + h.GetSampleSum())
	for _, b := range h.GetBucket() {
		if !slices.Contains(keptBuckets, b.GetUpperBound()) {
			continue
		}
		i := slices.IndexFunc(s.Bucket, func(o *dto.Bucket) bool { return o.GetUpperBound() == b.GetUpperBound() })
		if i < 0 {
			s.Bucket = append(s.Bucket, &dto.Bucket{UpperBound: b.UpperBound, CumulativeCount: proto.Uint64(0)})
			i = len(s.Bucket) - 1
		}
		s.Bucket[i].CumulativeCount = new(s.Bucket[i].GetCumulativeCount() + b.GetCumulativeCount())
	}
}
