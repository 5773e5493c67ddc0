package inbound

import (
	"net"
	"time"

	"github.com/weftmesh/weft/proxy/internal/accesslog"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/span"
	"github.com/weftmesh/weft/proxy/internal/tap"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// tap shows the request and its answer to whoever watches.
func (in *Inbound) tap(next handler) handler {
	if in.deps.Tap == nil {
		return next
	}
	return func(x *exchange) {
		if !in.deps.Tap.Active() {
			next(x)
			return
		}
		s := x.session
		shown := in.deps.Tap.Begin(&tap.Request{
			HTTP2: x.native(), Source: s.from, Destination: s.target, SourceLabels: tlsLabels(s.tls), Target: x.req.Target,
			Method: x.req.Method, Scheme: x.req.Scheme, Authority: x.req.Authority, Path: x.req.Path(), Fields: x.req.Fields,
		})
		if shown == nil {
			next(x)
			return
		}
		x.Client = &tap.Watched{Client: x.Client, Exchange: shown}
		defer shown.End(tap.End{}) // of a tunnel
		next(x)
	}
}

// tlsLabels are the labels of an address as tap has them: one for whether there is
// TLS, or why not.
func tlsLabels(l tell.Labels) map[string]string {
	out := map[string]string{}
	for _, label := range l {
		if label.Name == "no_tls_reason" {
			label.Name = "tls"
		}
		out[label.Name] = label.Value
	}
	return out
}

// trace makes the proxy a part of the request's trace.
func (in *Inbound) trace(kind span.Kind, next handler) handler {
	if in.deps.Spans == nil {
		return next
	}
	return func(x *exchange) {
		s := in.deps.Spans.Begin(x.req, kind, "inbound")
		next(x)
		if x.end.Status != 0 {
			s.Status(x.end.Status)
		}
		s.End()
	}
}

// record is what the access log wants to know of an answer.
type record struct {
	message.Client
	status int
	bytes  int64
	head   time.Time // when the answer began; zero before
	asked  time.Time // when the application was asked
}

// Respond is message.Client's.
func (r *record) Respond(res *message.Response) error {
	r.status, r.head = res.Status, time.Now()
	return r.Client.Respond(res)
}

// Write is message.Client's.
func (r *record) Write(p []byte) error {
	r.bytes += int64(len(p))
	return r.Client.Write(p)
}

// Tunnel takes the connection over, where the client below can.
func (r *record) Tunnel() (net.Conn, error) {
	if t, ok := r.Client.(interface{ Tunnel() (net.Conn, error) }); ok {
		return t.Tunnel()
	}
	return nil, message.ErrAborted
}

// access writes a line for each request.
func (in *Inbound) access(next handler) handler {
	if in.deps.Access == nil {
		return next
	}
	return func(x *exchange) {
		r, began := x.req, time.Now()
		e := accesslog.Entry{
			Client: x.session.from, ID: x.session.client.ID, At: began, Method: r.Method, URI: uri(r), Version: versions[r.Version],
			Host: r.Fields.Get("host"), UserAgent: r.Fields.Get("user-agent"), TraceID: traceID(r.Fields), RequestBytes: r.Length,
		}
		if r.Length == 0 && !r.Fields.Has("content-length") { // nothing is said, and so nothing shown
			e.RequestBytes = message.Unknown
		}
		if e.Host == "" {
			e.Host = r.Authority
		}
		x.record = &record{Client: x.Client}
		x.Client = x.record
		next(x)
		// As in Linkerd, an answer takes until its head; its bytes come after that.
		e.Status, e.ResponseBytes = x.record.status, x.record.bytes
		if x.record.head.IsZero() {
			x.record.head = time.Now()
		}
		e.Total = x.record.head.Sub(began)
		e.Processing = e.Total
		if asked := x.record.asked; !asked.IsZero() {
			e.Processing = asked.Sub(began)
		}
		in.deps.Access.Add(&e)
	}
}

// asked notes when the application is asked.
func (in *Inbound) asked(next handler) handler {
	if in.deps.Access == nil {
		return next
	}
	return func(x *exchange) {
		x.record.asked = time.Now()
		next(x)
	}
}

var versions = [...]string{message.HTTP10: "HTTP/1.0", message.HTTP11: "HTTP/1.1", message.HTTP2: "HTTP/2.0"}

// uri is the target as the client wrote it.
func uri(r *message.Request) string {
	switch {
	case r.Method == "CONNECT" && r.Target == "":
		return r.Authority
	case r.Version == message.HTTP2 || r.Absolute:
		scheme := r.Scheme
		if scheme == "" {
			scheme = "http"
		}
		return scheme + "://" + r.Authority + r.Target
	}
	return r.Target
}

// traceID is the first of the names by which traces go.
func traceID(f message.Fields) string {
	for _, name := range []string{"x-b3-traceid", "x-request-id", "x-amzn-trace-id"} {
		if id := f.Get(name); id != "" {
			return id
		}
	}
	return ""
}
