package inbound

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/weftmesh/weft/proxy/internal/allow"
	"github.com/weftmesh/weft/proxy/internal/classify"
	"github.com/weftmesh/weft/proxy/internal/clock"
	"github.com/weftmesh/weft/proxy/internal/fate"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/origproto"
	"github.com/weftmesh/weft/proxy/internal/profile"
	"github.com/weftmesh/weft/proxy/internal/relay"
	"github.com/weftmesh/weft/proxy/internal/spare"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// exchange is one request, and what the layers know of it.
type exchange struct {
	message.Client
	req      *message.Request
	session  *session
	guard    relay.Guard
	verdict  allow.Verdict
	upgraded bool // an HTTP/1 request that a peer carried over HTTP/2
	proto    origproto.Proto
	upgrade  string // what an HTTP/1.1 client wants to switch to
	grpc     bool
	counts   *counts // once allowed
	end      tell.End
	began    time.Duration  // by clock, once allowed
	ended    time.Duration  // by clock, once an application's answer has come to its end
	unsaid   bool           // no grpc-status came
	fate     fate.Fate      // once the application could not answer
	whole    bool           // it has ended as it should, and nobody else knows of it
	record   *record        // nil unless there is an access log
	frames   frames         // the request's body
	route    *profile.Route // of the service's profile; nil if there is none

	out   message.Request // what the application gets
	asked kept
}

// kept is what an exchange keeps when it is used again.
type kept struct {
	hint   func(*message.Response) error
	header func(string) []string
	query  func(string) []string
	values []string // of the last name that was asked for
	parsed url.Values
}

// exchanges are used again: a request costs no memory.
var exchanges = spare.Pool[exchange]{Small: true, Make: func() *exchange {
	x := new(exchange)
	x.asked = kept{hint: x.interim, header: x.header, query: x.query}
	return x
}}

// native reports whether HTTP/2 is what the client's application speaks.
func (x *exchange) native() bool { return x.req.Version == message.HTTP2 && !x.upgraded }

const clientID = "l5d-client-id"

// carry takes a client's request through the stack.
func (in *Inbound) carry(c message.Client, s *session, through handler) {
	x := exchanges.Get()
	x.Client, x.req, x.session = c, c.Request(), s
	x.grpc = x.req.GRPC()
	through(x)
	if x.whole { // else it is left to the collector
		k := x.asked
		k.values, k.parsed = k.values[:0], nil
		*x = exchange{asked: k}
		exchanges.Put(x)
	}
}

// limit refuses what exceeds the requests in flight.
func (in *Inbound) limit(next handler) handler {
	return func(x *exchange) {
		defer in.inFlight.Add(-1)
		if in.inFlight.Add(1) > int64(in.cfg.Inbound.MaxInFlight) {
			in.fail(x, failure{http.StatusServiceUnavailable, codeUnavailable, "in-flight limit exceeded", true, "loadshed"})
			return
		}
		next(x)
	}
}

// mesh reads and removes what peers' proxies say in headers, and tells the
// application who the client is. What a client says of itself is not believed.
func (in *Inbound) mesh(next handler) handler {
	return func(x *exchange) {
		r := x.req
		if p, ok := origproto.Take(&r.Fields); ok && r.Version == message.HTTP2 && r.Method != http.MethodConnect {
			x.upgraded, x.proto = true, p
		}
		if r.Method != http.MethodConnect {
			x.upgrade = r.Upgrade()
		}
		if (x.upgraded || r.Absolute) && r.Authority != "" && r.Fields.Has("host") {
			r.Fields.Set("host", r.Authority) // what the policy is to judge (RFC 9112 §3.2.2, RFC 9113 §8.3.1)
		}
		// Before our own header is set: a client may name it in Connection.
		hopByHop(&r.Fields)
		r.Fields.Del(clientID)
		if id := x.session.client.ID; id != "" {
			r.Fields.Add(clientID, id)
		}
		next(x)
	}
}

// allow asks the port's policy of this moment.
func (in *Inbound) allow(next handler) handler {
	return func(x *exchange) {
		s := x.session
		policy := s.port.policy()
		v := policy.HTTP(s.client, x.question())
		x.verdict = v
		switch {
		case v.Broken:
			in.fail(x, failure{http.StatusInternalServerError, codeInternal, "invalid server configuration", true, "unexpected"})
		case v.NoRoute:
			in.decided(tell.InboundHTTPNoRoute, s, v)
			in.fail(x, failure{http.StatusNotFound, codeNotFound, "no route found for request", false, ""})
		case !v.Allowed:
			in.decided(tell.InboundHTTPDeny, s, v)
			in.log.Info("request denied", "client", s.client.Addr.String(), "identity", s.client.ID, "target", s.target.String(), "server", v.Server.Name, "route", v.Route.Name)
			in.fail(x, failure{http.StatusForbidden, codePermissionDenied, "client is unauthorized", false, ""})
		default:
			x.counts = s.count(in.deps.Metrics, v, policy.Protocol == allow.GRPC, in.authority(x))
			x.counts.allowed.Inc()
			if v.Audited {
				in.log.Info("request allowed by the audit policy", "client", s.client.Addr.String(), "identity", s.client.ID, "target", s.target.String())
			}
			next(x)
		}
	}
}

// question is the request as a policy sees it.
func (x *exchange) question() allow.Request {
	r := x.req
	return allow.Request{Method: r.Method, Authority: r.Authority, Path: r.Path(), Header: x.asked.header, Query: x.asked.query}
}

func (x *exchange) header(name string) []string {
	values := x.asked.values[:0]
	for i := range x.req.Fields {
		if f := &x.req.Fields[i]; message.Is(f.Name, name) {
			values = append(values, f.Value)
		}
	}
	x.asked.values = values
	return values
}

func (x *exchange) query(name string) []string {
	if x.asked.parsed == nil {
		x.asked.parsed, _ = url.ParseQuery(x.req.Query()) // what cannot be read matches nothing
	}
	return x.asked.parsed[name]
}

// filter applies the route's filters.
func (in *Inbound) filter(next handler) handler {
	return func(x *exchange) {
		for _, f := range x.verdict.Filters {
			if f.Fail != "" && rand.Float64() < f.Ratio { //nolint:gosec // spread, not secrecy
				in.fail(x, failure{http.StatusInternalServerError, codeInternal, f.Fail, true, "unexpected"})
				return
			}
			if f.Redirect != nil && in.redirect(x, f.Redirect) {
				return
			}
			if f.Request != nil {
				f.Request.Apply(&x.req.Fields)
			}
		}
		next(x)
	}
}

// authority is a label only where the environment calls for it: clients make
// authorities up.
func (in *Inbound) authority(x *exchange) string {
	if in.cfg.UnsafeAuthorityLabel {
		return x.req.Authority
	}
	return ""
}

// tell counts the request and how it ends.
func (in *Inbound) tell(next handler) handler {
	return func(x *exchange) {
		call := x.counts.begin()
		x.began = call.began
		defer func() {
			x.end.Success = x.end.Error == "" && x.succeeded()
			if x.ended == 0 {
				x.ended = clock.Now()
			}
			call.over(x.end, x.ended, time.Duration(x.frames.ended.Load()))
		}()
		next(x)
	}
}

// succeeded classifies as the profile says, else as spec/proxy.md §6.7 does: an
// answer of gRPC without a status is UNKNOWN by name, but no failure.
func (x *exchange) succeeded() bool {
	e, status := x.end, x.end.GRPC
	if x.unsaid {
		status = ""
	}
	if x.route != nil {
		return x.route.Success(e.Status, status)
	}
	return classify.Success(e.Status, e.GRPC != "", status)
}
