package rpc

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
)

// TestMetricsAreThoseOfTheLibrary: dashboards and alerts are written for the
// names, labels and texts of go-grpc-prometheus.
func TestMetricsAreThoseOfTheLibrary(t *testing.T) {
	all := func(c prometheus.Collector) map[string]bool {
		ch, descs := make(chan *prometheus.Desc, 10), map[string]bool{}
		c.Describe(ch)
		close(ch)
		for d := range ch {
			descs[d.String()] = true
		}
		return descs
	}
	if diff := cmp.Diff(all(grpcprom.NewServerMetrics()), all(newCalls())); diff != "" {
		t.Errorf("(-library +ours):\n%s", diff)
	}
}
