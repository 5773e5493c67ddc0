package scale_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// number is the sum of a metric's series.
func number(t *testing.T, p *proc.Process, name string) float64 {
	t.Helper()
	sum := 0.0
	for line := range strings.Lines(page(t, p, "/metrics")) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if base, _, _ := strings.Cut(series, "{"); !ok || base != name {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// subscribersNow is how many streams are open.
func subscribersNow(t *testing.T, p *proc.Process) float64 {
	t.Helper()
	return number(t, p, "endpoints_subscribers") + number(t, p, "profile_subscribers")
}

// flip says whether the first endpoint of a Service is ready next: the other way
// than now.
func (m *mesh) flip(service int) bool {
	if m.ready == nil {
		m.ready = make(map[int]bool)
	}
	was, known := m.ready[service]
	m.ready[service] = known && !was
	return m.ready[service]
}

// gauge is one series.
func gauge(t *testing.T, p *proc.Process, series string) float64 {
	t.Helper()
	for line := range strings.Lines(page(t, p, "/metrics")) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}
