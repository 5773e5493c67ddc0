package outbound

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weftmesh/weft/proxy/internal/tell"
)

// routeTell counts the requests of a route, or of a backend of a route.
type routeTell struct {
	m      *tell.Metrics
	of     tell.Labels // the route's
	labels tell.Labels // those and more: a host, or a backend
	grpc   bool
	perTry bool // of a backend

	requests *tell.Counter // of a backend only
	time     *tell.Histogram
	frames   *tell.Histogram // of the question; of the answer, if it is a backend's
	statuses tell.Bound[outcome, *tell.Counter]
	hosts    tell.Bound[string, *routeTell]
	known    atomic.Int64 // hosts that are counted apart
}

// newRouteTell counts the requests of a route for a host; "" is all of them.
func newRouteTell(m *tell.Metrics, l tell.Labels, host string, grpc bool) *routeTell {
	f, frames := tell.OutboundHTTPRouteTime, tell.OutboundHTTPRouteFrames
	if grpc {
		f, frames = tell.OutboundGRPCRouteTime, tell.OutboundGRPCRouteFrames
	}
	named := l.With("hostname", host)
	return &routeTell{m: m, of: l, labels: named, grpc: grpc, time: m.Histogram(f, named), frames: m.Histogram(frames, named)}
}

func (t *routeTell) backend(l tell.Labels) *routeTell {
	b := &routeTell{m: t.m, labels: t.of.And(l), grpc: t.grpc, perTry: true}
	requests, took, frames := tell.OutboundHTTPBackendRequests, tell.OutboundHTTPBackendTime, tell.OutboundHTTPBackendFrames
	if t.grpc {
		requests, took, frames = tell.OutboundGRPCBackendRequests, tell.OutboundGRPCBackendTime, tell.OutboundGRPCBackendFrames
	}
	b.requests, b.time, b.frames = b.m.Counter(requests, b.labels), b.m.Histogram(took, b.labels), b.m.Histogram(frames, b.labels)
	return b
}

func (t *routeTell) start() {
	if t != nil && t.requests != nil {
		t.requests.Inc()
	}
}

// retriable makes the families of retries, which are there before any is.
func (t *routeTell) retriable() {
	f := t.retries()
	for _, f := range []tell.Family{f.Requests, f.Successes, f.Limit, f.Overflow} {
		t.m.Counter(f, t.labels)
	}
}

func (t *routeTell) retries() *tell.Retries {
	if t.grpc {
		return &tell.GRPCRetries
	}
	return &tell.HTTPRetries
}

// end counts an end, unless it is none.
func (t *routeTell) end(took time.Duration, o outcome) {
	if t == nil || o == (outcome{}) {
		return
	}
	t.time.Observe(took.Seconds())
	if o.status < 0 || o.status > 999 {
		o.status = 0
	}
	if t.grpc {
		o.status, o.grpc = 0, tell.Code(o.grpc)
	} else {
		o.grpc = ""
	}
	c, ok := t.statuses.Get(o)
	if !ok {
		c = t.statuses.Put(o, t.m.Counter(t.family(), t.statusLabels(o)))
	}
	c.Inc()
}

func (t *routeTell) statusLabels(o outcome) tell.Labels {
	l := t.labels.With("error", o.err)
	if t.grpc {
		return l.With("grpc_status", tell.CodeName(o.grpc))
	}
	status := ""
	if o.status != 0 {
		status = strconv.Itoa(o.status)
	}
	return l.With("http_status", status)
}

func (t *routeTell) family() tell.Family {
	switch {
	case t.grpc && t.perTry:
		return tell.OutboundGRPCBackendStatuses
	case t.grpc:
		return tell.OutboundGRPCRouteStatuses
	case t.perTry:
		return tell.OutboundHTTPBackendStatuses
	}
	return tell.OutboundHTTPRouteStatuses
}
