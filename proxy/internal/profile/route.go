package profile

import (
	"strconv"
	"time"

	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// Route is what a profile says of some requests, and counts them.
type Route struct {
	rule     *resolve.ProfileRule
	m        *tell.Metrics
	labels   tell.Labels
	requests *tell.Counter
	ends     tell.Bound[end, *tell.Counter]
	times    tell.Bound[int, *tell.Histogram] // by status
}

type end struct {
	status  int
	success bool
}

func newRoute(m *tell.Metrics, dst string, rule *resolve.ProfileRule) *Route {
	var named tell.Labels
	for _, l := range rule.Labels {
		named = named.With(l.Name, l.Value)
	}
	l := tell.Route("inbound", dst, named)
	return &Route{rule: rule, m: m, labels: l, requests: m.Counter(tell.RouteRequests, l)}
}

// Timeout is how long a request may take; 0 is as long as it does.
func (r *Route) Timeout() time.Duration { return r.rule.Timeout }

// Success reports whether an answer is none of a failure.
func (r *Route) Success(status int, grpc string) bool { return r.rule.Classes.Success(status, grpc) }

// Begin counts a request.
func (r *Route) Begin() { r.requests.Inc() }

// End counts how it ended.
func (r *Route) End(status int, success bool, took time.Duration) {
	if status < 0 || status > 999 {
		status = 0
	}
	key := end{status, success}
	c, ok := r.ends.Get(key)
	if !ok {
		class := "failure"
		if success {
			class = "success"
		}
		c = r.ends.Put(key, r.m.Counter(tell.RouteResponses, r.status(status).With("classification", class)))
	}
	c.Inc()
	h, ok := r.times.Get(status)
	if !ok {
		h = r.times.Put(status, r.m.Histogram(tell.RouteLatency, r.status(status)))
	}
	h.Observe(float64(took) / float64(time.Millisecond))
}

func (r *Route) status(status int) tell.Labels {
	if status == 0 {
		return r.labels
	}
	return r.labels.With("status_code", strconv.Itoa(status))
}
