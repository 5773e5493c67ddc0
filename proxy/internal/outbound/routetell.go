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
	labels tell.Labels
	grpc   bool
	perTry bool // of a backend

	requests *tell.Counter // of a backend only
	time     *tell.Histogram
	frames   *tell.Histogram // of the question; of the answer, if it is a backend's
	statuses tell.Bound[statusKey, *tell.Counter]
	hosts    tell.Bound[string, *routeTell]
	known    atomic.Int64 // hosts that are counted apart
}

type statusKey struct {
	status int
	grpc   string
	err    string
}

func newRouteTell(m *tell.Metrics, l tell.Labels, grpc bool) *routeTell {
	f, frames := tell.OutboundHTTPRouteTime, tell.OutboundHTTPRouteFrames
	if grpc {
		f, frames = tell.OutboundGRPCRouteTime, tell.OutboundGRPCRouteFrames
	}
	return &routeTell{m: m, labels: l, grpc: grpc, time: m.Histogram(f, l), frames: m.Histogram(frames, l)}
}

func (t *routeTell) backend(l tell.Labels) *routeTell {
	b := &routeTell{m: t.m, labels: t.labels.And(l), grpc: t.grpc, perTry: true}
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

// end counts an end. grpc is the gRPC status, if there was one.
func (t *routeTell) end(took time.Duration, status int, grpc, errLabel string) {
	if t == nil {
		return
	}
	t.time.Observe(took.Seconds())
	if status < 0 || status > 999 {
		status = 0
	}
	key := statusKey{status: status, err: errLabel}
	if t.grpc {
		key = statusKey{grpc: tell.Code(grpc), err: errLabel}
	}
	c, ok := t.statuses.Get(key)
	if !ok {
		c = t.statuses.Put(key, t.m.Counter(t.family(), t.statusLabels(key)))
	}
	c.Inc()
}

func (t *routeTell) statusLabels(k statusKey) tell.Labels {
	l := t.labels.With("error", k.err)
	if t.grpc {
		return l.With("grpc_status", k.grpc)
	}
	status := ""
	if k.status != 0 {
		status = strconv.Itoa(k.status)
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
