package inbound

import (
	"strconv"
	"time"

	"github.com/weftmesh/weft/proxy/internal/allow"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// Families of gRPC requests; those of HTTP are in package tell.
var (
	grpcRequests = tell.Family{Name: "inbound_grpc_requests_total", Help: "The number of gRPC requests received", Kind: tell.KindCounter}
	grpcStatuses = tell.Family{Name: "inbound_grpc_statuses_total", Help: "Completed responses by status", Kind: tell.KindCounter}
	grpcTime     = tell.Family{
		Name: "inbound_grpc_request_duration_seconds", Help: "The time between request initialization and response completion",
		Kind: tell.KindHistogram, Buckets: tell.InboundHTTPTime.Buckets,
	}
)

// counts are the meters of the requests that one rule of a policy covers, under
// the old names and the new ones (spec/proxy.md §15.2, §15.3).
type counts struct {
	key      bindKey
	m        *tell.Metrics
	allowed  *tell.Counter
	old      *tell.HTTP
	requests *tell.Counter
	duration *tell.Histogram
	statuses tell.Family
	labels   tell.Labels
	grpc     bool
	ended    tell.Bound[string, *tell.Counter] // by status
}

type bindKey struct {
	server, route, authz allow.Ref
	grpc                 bool
}

// count binds the meters of a verdict, once per session.
func (s *session) count(m *tell.Metrics, v allow.Verdict, grpc bool) *counts {
	key := bindKey{v.Server, v.Route, v.Authz, grpc}
	if c := s.last.Load(); c != nil && c.key == key {
		return c
	}
	if c, ok := s.counts.Get(key); ok {
		s.last.Store(c)
		return c
	}
	labels := tell.Labels{
		{Name: "parent_group", Value: v.Server.Group},
		{Name: "parent_kind", Value: v.Server.Kind},
		{Name: "parent_name", Value: v.Server.Name},
		{Name: "route_group", Value: v.Route.Group},
		{Name: "route_kind", Value: v.Route.Kind},
		{Name: "route_name", Value: v.Route.Name},
	}
	decision := s.labels.And(verdictLabels(v, s.target.Port()))
	c := &counts{
		key: key, m: m, labels: labels, grpc: grpc, statuses: tell.InboundHTTPStatuses,
		allowed: m.Counter(tell.InboundHTTPAllow, decision), old: m.HTTP(decision),
	}
	requests, duration := tell.InboundHTTPRequests, tell.InboundHTTPTime
	if grpc {
		requests, duration, c.statuses = grpcRequests, grpcTime, grpcStatuses
	}
	c.requests, c.duration = m.Counter(requests, labels), m.Histogram(duration, labels)
	return s.counts.Put(key, c)
}

// running is a request that has been counted, and whose end has not.
type running struct {
	c     *counts
	began time.Time
	call  tell.Call
}

// begin counts a request.
func (c *counts) begin() running {
	r := running{c: c, began: time.Now(), call: c.old.Start()}
	c.requests.Inc()
	return r
}

// over counts how it ended.
func (r running) over(e tell.End) {
	r.call.End(e)
	r.c.duration.Observe(time.Since(r.began).Seconds())
	r.c.status(e).Inc()
}

func (c *counts) status(e tell.End) *tell.Counter {
	var digits [3]byte
	status := digits[:0]
	switch {
	case c.grpc:
		status = append(status, "2"...) // an application may make numbers up
		if n, err := strconv.ParseUint(e.GRPC, 10, 8); err == nil && n <= 16 {
			status = strconv.AppendUint(status[:0], n, 10)
		}
	case e.Status >= 0 && e.Status <= 999:
		status = strconv.AppendInt(status, int64(e.Status), 10)
	}
	if n, ok := c.ended.Get(string(status)); ok {
		return n
	}
	text := string(status)
	return c.ended.Put(text, c.m.Counter(c.statuses, c.labels.With("status", text)))
}

// verdictLabels say which policy decided.
func verdictLabels(v allow.Verdict, port uint16) tell.Labels {
	l := tell.Labels{
		{Name: "srv_group", Value: v.Server.Group},
		{Name: "srv_kind", Value: v.Server.Kind},
		{Name: "srv_name", Value: v.Server.Name},
		{Name: "srv_port", Value: portText(port)},
	}
	if v.Route != (allow.Ref{}) {
		l = append(l, tell.Label{Name: "route_group", Value: v.Route.Group},
			tell.Label{Name: "route_kind", Value: v.Route.Kind},
			tell.Label{Name: "route_name", Value: v.Route.Name})
	}
	if v.Authz != (allow.Ref{}) {
		l = append(l, tell.Label{Name: "authz_group", Value: v.Authz.Group},
			tell.Label{Name: "authz_kind", Value: v.Authz.Kind},
			tell.Label{Name: "authz_name", Value: v.Authz.Name})
	}
	return l
}
