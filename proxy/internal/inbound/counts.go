package inbound

import (
	"strconv"
	"sync"
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
	m        *tell.Metrics
	allowed  *tell.Counter
	old      *tell.HTTP
	requests *tell.Counter
	duration *tell.Histogram
	statuses tell.Family
	labels   tell.Labels
	grpc     bool
	ended    sync.Map // status -> *tell.Counter, at most as many as there are statuses
}

type bindKey struct {
	server, route, authz allow.Ref
	grpc                 bool
}

// count binds the meters of a verdict, once per session.
func (s *session) count(m *tell.Metrics, v allow.Verdict, grpc bool) *counts {
	key := bindKey{v.Server, v.Route, v.Authz, grpc}
	if c, ok := s.counts.Load(key); ok {
		return c.(*counts)
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
		m: m, labels: labels, grpc: grpc, statuses: tell.InboundHTTPStatuses,
		allowed: m.Counter(tell.InboundHTTPAllow, decision), old: m.HTTP(decision),
	}
	requests, duration := tell.InboundHTTPRequests, tell.InboundHTTPTime
	if grpc {
		requests, duration, c.statuses = grpcRequests, grpcTime, grpcStatuses
	}
	c.requests, c.duration = m.Counter(requests, labels), m.Histogram(duration, labels)
	s.counts.Store(key, c)
	return c
}

// begin counts a request; the function it returns counts how it ended.
func (c *counts) begin() func(tell.End) {
	began, call := time.Now(), c.old.Start()
	c.requests.Inc()
	return func(e tell.End) {
		call.End(e)
		c.duration.Observe(time.Since(began).Seconds())
		status := strconv.Itoa(e.Status)
		if c.grpc {
			status = e.GRPC
		}
		if e.Status < 0 || e.Status > 999 {
			status = "" // an application may make numbers up
		}
		if n, err := strconv.ParseUint(e.GRPC, 10, 8); c.grpc && (err != nil || n > 16) {
			status = "2"
		}
		c.status(status).Inc()
	}
}

func (c *counts) status(status string) *tell.Counter {
	if n, ok := c.ended.Load(status); ok {
		return n.(*tell.Counter)
	}
	n := c.m.Counter(c.statuses, c.labels.With("status", status))
	c.ended.Store(status, n)
	return n
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
