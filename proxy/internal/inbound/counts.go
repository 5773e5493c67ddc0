package inbound

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/weftmesh/weft/proxy/internal/allow"
	"github.com/weftmesh/weft/proxy/internal/clock"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// families are those of HTTP requests, or of gRPC ones.
type families struct{ requests, statuses, requestTime, responseTime, requestFrames, responseFrames tell.Family }

var (
	httpFamilies = families{
		tell.InboundHTTPRequests, tell.InboundHTTPStatuses, tell.InboundHTTPTime,
		tell.InboundHTTPResponseTime, tell.InboundHTTPRequestFrames, tell.InboundHTTPResponseFrames,
	}
	grpcFamilies = families{
		tell.InboundGRPCRequests, tell.InboundGRPCStatuses, tell.InboundGRPCTime,
		tell.InboundGRPCResponseTime, tell.InboundGRPCRequestFrames, tell.InboundGRPCResponseFrames,
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
	statuses tell.Family
	labels   tell.Labels
	grpc     bool

	requestTime, responseTime     *tell.Histogram
	requestFrames, responseFrames *tell.Histogram

	ended tell.Bound[string, *tell.Counter] // by status
}

type bindKey struct {
	server, route, authz allow.Ref
	grpc                 bool
	authority            string // only if the environment asks for it
}

// maxAuthorities bounds the authorities that a session counts apart: clients make
// them up.
const maxAuthorities = 64

// count binds the meters of a verdict, once per session. grpc says that the policy's
// routes are gRPC's: requests of gRPC by routes of HTTP are counted as HTTP.
func (s *session) count(m *tell.Metrics, v allow.Verdict, grpc bool, authority string) *counts {
	key := bindKey{v.Server, v.Route, v.Authz, grpc, authority}
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
		{Name: "parent_port", Value: portText(s.target.Port())},
		{Name: "route_group", Value: v.Route.Group},
		{Name: "route_kind", Value: v.Route.Kind},
		{Name: "route_name", Value: v.Route.Name},
	}
	verdict := verdictLabels(v, s.target.Port())
	decision, old := s.place.And(verdict), s.labels.And(verdict)
	if authority != "" {
		if s.authorities.Add(1) > maxAuthorities {
			return s.count(m, v, grpc, "")
		}
		key.authority = strings.Clone(authority) // heads are borrowed
		old = old.With("authority", key.authority)
	}
	f := httpFamilies
	if grpc {
		f = grpcFamilies
	}
	c := &counts{
		key: key, m: m, labels: labels, grpc: grpc, statuses: f.statuses,
		allowed: m.Counter(tell.InboundHTTPAllow, decision), old: m.HTTP(old), requests: m.Counter(f.requests, labels),
		requestTime: m.Histogram(f.requestTime, labels), responseTime: m.Histogram(f.responseTime, labels),
		requestFrames: m.Histogram(f.requestFrames, labels), responseFrames: m.Histogram(f.responseFrames, labels),
	}
	return s.counts.Put(key, c)
}

// running is a request that has been counted, and whose end has not.
type running struct {
	c     *counts
	began time.Duration // of clock
	call  tell.Call
}

// begin counts a request.
func (c *counts) begin() running {
	r := running{c: c, began: clock.Now(), call: c.old.Start()}
	c.requests.Inc()
	return r
}

// over counts how it ended, and now. asked is when the question was complete, by
// clock; 0 if it had no body.
func (r running) over(e tell.End, now, asked time.Duration) {
	took := now - r.began
	r.call.End(e, took)
	if e.Status == 0 && e.Error == "" { // nobody waited for it
		return
	}
	r.c.requestTime.Observe(took.Seconds())
	if asked != 0 {
		took = now - max(asked, r.began)
	}
	r.c.responseTime.Observe(took.Seconds())
	r.c.status(e).Inc()
}

func (c *counts) status(e tell.End) *tell.Counter {
	var digits [3]byte
	status := digits[:0]
	switch {
	case c.grpc:
		status = append(status, cmp.Or(tell.Code(e.GRPC), "2")...)
	case e.Status > 0 && e.Status <= 999:
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
