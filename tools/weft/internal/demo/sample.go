package demo

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// sample is what one proxy's inbound side has counted up to a moment.
type sample struct {
	at           time.Time
	ok, failed   float64
	denied       float64
	secure, open float64 // requests and connections with mTLS, and without
	conns        float64
	peers        map[string]bool
	buckets      map[float64]float64 // cumulative response times by upper bound in ms
}

// read reduces a proxy's metrics page to a sample.
func read(page io.Reader, at time.Time) (sample, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(page)
	if err != nil {
		return sample{}, fmt.Errorf("reading metrics: %w", err)
	}
	s := sample{at: at, peers: map[string]bool{}, buckets: map[float64]float64{}}
	each(families["response_total"], func(labels map[string]string, m *dto.Metric) {
		if labels["classification"] == "success" {
			s.ok += m.GetCounter().GetValue()
		} else {
			s.failed += m.GetCounter().GetValue()
		}
	})
	each(families["request_total"], func(labels map[string]string, m *dto.Metric) { s.transport(labels, m.GetCounter().GetValue()) })
	each(families["tcp_open_total"], func(labels map[string]string, m *dto.Metric) {
		if labels["peer"] == "src" {
			s.conns += m.GetCounter().GetValue()
			s.transport(labels, m.GetCounter().GetValue())
		}
	})
	for _, name := range []string{"inbound_http_authz_deny_total", "inbound_tcp_authz_deny_total"} {
		for _, m := range families[name].GetMetric() {
			s.denied += m.GetCounter().GetValue()
		}
	}
	each(families["response_latency_ms"], func(_ map[string]string, m *dto.Metric) {
		for _, b := range m.GetHistogram().GetBucket() {
			s.buckets[b.GetUpperBound()] += float64(b.GetCumulativeCount())
		}
	})
	return s, nil
}

func (s *sample) transport(labels map[string]string, n float64) {
	if labels["tls"] != "true" {
		s.open += n
		return
	}
	s.secure += n
	if id := labels["client_id"]; id != "" && n > 0 {
		s.peers[id] = true
	}
}

// proxyAdminPort is where the proxy itself answers probes and scrapes, ours among
// them: without TLS, and no traffic of the workload.
const proxyAdminPort = "4191"

// each calls f for the inbound series of a family, those of the admin port left
// out.
func each(family *dto.MetricFamily, f func(labels map[string]string, m *dto.Metric)) {
	for _, m := range family.GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["direction"] == "inbound" && labels["target_port"] != proxyAdminPort {
			f(labels, m)
		}
	}
}

// row is one line of the live table: a workload over the last interval.
type row struct {
	name          string
	state         string  // "removed" or "no answer"; empty for a workload with figures
	rps, success  float64 // success is a share, NaN without traffic
	p50, p95, p99 float64 // ms, NaN without traffic
	conns         float64 // a second
	secure        float64 // share of requests and connections with mTLS since the start
	peers         []string
}

// between compares two samples of one workload.
func between(name string, old, now sample) row {
	seconds := max(now.at.Sub(old.at).Seconds(), 0.001)
	ok, failed := now.ok-old.ok, now.failed-old.failed
	r := row{
		name: name, rps: (ok + failed) / seconds, success: ok / (ok + failed),
		conns: (now.conns - old.conns) / seconds, secure: now.secure / (now.secure + now.open),
		peers: slices.Sorted(maps.Keys(now.peers)),
	}
	diff := map[float64]float64{}
	for le, n := range now.buckets {
		diff[le] = n - old.buckets[le]
	}
	r.p50, r.p95, r.p99 = quantile(diff, 0.5), quantile(diff, 0.95), quantile(diff, 0.99)
	return r
}

// quantile interpolates within a cumulative histogram, as Prometheus does;
// above the last finite bound it is that bound.
func quantile(buckets map[float64]float64, q float64) float64 {
	bounds := slices.Sorted(maps.Keys(buckets))
	if len(bounds) == 0 || buckets[bounds[len(bounds)-1]] <= 0 {
		return math.NaN()
	}
	want := q * buckets[bounds[len(bounds)-1]]
	below, from := 0.0, 0.0
	for _, le := range bounds {
		if n := buckets[le]; n >= want {
			if math.IsInf(le, 1) {
				return from
			}
			if n == below {
				return le
			}
			return from + (le-from)*(want-below)/(n-below)
		}
		below, from = buckets[le], le
	}
	return from
}

// short cuts an identity to service account and namespace.
func short(identity string) string {
	parts := strings.SplitN(identity, ".", 3)
	if len(parts) < 2 {
		return identity
	}
	return parts[0] + "." + parts[1]
}
