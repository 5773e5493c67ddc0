package outbound

import (
	"strconv"
	"sync"
	"time"

	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// profileTell counts the requests of a ServiceProfile's route, and the tries of
// them.
type profileTell struct {
	m        *tell.Metrics
	labels   tell.Labels
	requests *tell.Counter
	tries    *tell.Counter
	failed   *tell.Counter // tries that would be done again
	broke    *tell.Counter // of those, the ones for which there was no budget
	ends     sync.Map      // profileEnd -> *tell.Counter
	times    sync.Map      // status -> *tell.Histogram
}

type profileEnd struct {
	actual, success bool
	status          int
}

func newProfileTell(m *tell.Metrics, r *resolve.ProfileRule) *profileTell {
	var named tell.Labels
	for _, l := range r.Labels {
		named = named.With(l.Name, l.Value)
	}
	l := tell.Route("outbound", r.Canonical, named)
	return &profileTell{
		m: m, labels: l, requests: m.Counter(tell.RouteRequests, l), tries: m.Counter(tell.RouteActualRequests, l),
		failed: m.Counter(tell.RouteRetryable, l), broke: m.Counter(tell.RouteRetryable, l.With("skipped", "no_budget")),
	}
}

// end counts the end of a request, or of one try of it.
func (t *profileTell) end(actual bool, status int, success bool, took time.Duration) {
	if t == nil {
		return
	}
	if status < 0 || status > 999 {
		status = 0
	}
	key := profileEnd{actual, success, status}
	c, ok := t.ends.Load(key)
	if !ok {
		class, family := "failure", tell.RouteResponses
		if success {
			class = "success"
		}
		if actual {
			family = tell.RouteActualResponses
		}
		c, _ = t.ends.LoadOrStore(key, t.m.Counter(family, t.coded(status).With("classification", class)))
	}
	c.(*tell.Counter).Inc()
	if actual {
		return
	}
	h, ok := t.times.Load(status)
	if !ok {
		h, _ = t.times.LoadOrStore(status, t.m.Histogram(tell.RouteLatency, t.coded(status)))
	}
	h.(*tell.Histogram).Observe(float64(took) / float64(time.Millisecond))
}

func (t *profileTell) coded(status int) tell.Labels {
	if status == 0 {
		return t.labels
	}
	return t.labels.With("status_code", strconv.Itoa(status))
}

// start counts a request, and try one attempt at it.
func (t *profileTell) start() {
	if t != nil {
		t.requests.Inc()
	}
}

func (t *profileTell) try() {
	if t != nil {
		t.tries.Inc()
	}
}
