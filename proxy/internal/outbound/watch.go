package outbound

import (
	"net"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/span"
	"github.com/weftmesh/weft/proxy/internal/tap"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// watched is what is shown of an attempt, or told of it to a trace. The zero value
// is one that nobody looks at.
type watched struct {
	tap    *tap.Exchange
	span   *span.Span
	failed error // what ended it too early
}

// watch shows an attempt to whoever looks. It costs a load if nobody does.
func (x *exchange) watch(t *try, out *message.Request) {
	t.watched = watched{span: x.o.deps.Spans.Begin(out, span.Client, "outbound")}
	if !x.o.deps.Tap.Active() {
		return
	}
	ep := t.lease.Client
	q := &tap.Request{
		Outbound: true, HTTP2: x.r.Version == message.HTTP2, Target: out.Target, Source: x.client.addr, Destination: ep.Addr,
		Method: out.Method, Scheme: out.Scheme, Authority: x.authority, Path: out.Path(), Fields: out.Fields,
		SourceLabels: map[string]string{"tls": tell.Loopback}, DestinationLabels: ep.Shown(),
	}
	if p := x.rule.Profile; p != nil {
		q.RouteLabels = make(map[string]string, len(p.Labels))
		for _, l := range p.Labels {
			q.RouteLabels[l.Name] = l.Value
		}
	}
	t.watched.tap = x.o.deps.Tap.Begin(q)
}

// head shows the head of the answer.
func (w *watched) head(res *message.Response) {
	if w.tap != nil {
		w.tap.Head(res.Status, res.Fields)
	}
	w.span.Status(res.Status)
}

// over shows the end of an attempt.
func (w *watched) over(t *try) {
	w.span.End()
	if w.tap == nil {
		return
	}
	switch {
	case w.failed != nil:
		w.tap.End(tap.EndOf(w.failed))
	case t.body != nil:
		w.tap.End(tap.End{Trailer: t.body.Trailer()})
	default:
		w.tap.End(tap.End{})
	}
}

// trace makes this proxy a part of the request's trace, if it has one. What it
// returns ends that part.
func (x *exchange) trace() *spanned {
	s := x.o.deps.Spans.Begin(x.r, span.Server, "outbound")
	if s == nil {
		return nil
	}
	c := &spanned{Client: x.Client, span: s}
	x.Client = c
	return c
}

// spanned is a client whose answer is told to its trace.
type spanned struct {
	message.Client
	span *span.Span
}

func (c *spanned) end() {
	if c != nil {
		c.span.End()
	}
}

// Respond is message.Client's.
func (c *spanned) Respond(res *message.Response) error {
	c.span.Status(res.Status)
	return c.Client.Respond(res)
}

// Tunnel takes the connection over, where the client below can.
func (c *spanned) Tunnel() (net.Conn, error) {
	if t, ok := c.Client.(interface{ Tunnel() (net.Conn, error) }); ok {
		return t.Tunnel()
	}
	return nil, message.ErrAborted
}
