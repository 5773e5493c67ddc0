package outbound

import (
	"context"
	"errors"
	"time"

	"github.com/weftmesh/weft/proxy/internal/balance"
	"github.com/weftmesh/weft/proxy/internal/endpoint"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/relay"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// try is one attempt: its response and what must be told at its end.
type try struct {
	answer  *relay.Answer
	res     *message.Response
	body    message.Body // of the answer; what was looked at is still in it
	guard   relay.Guard  // of one that ends before the exchange does
	lease   *lease
	backend *backend
	call    tell.Call
	began   time.Duration
	timer   *time.Timer // of the attempt's own timeout
	route   *profileTell
	watched watched
}

func (x *exchange) roundTrip(ctx context.Context, out *message.Request, t *try, guard *relay.Guard) error {
	ep := t.lease.Client
	if id := x.r.Fields.Get("l5d-require-id"); id != "" && (!ep.Meshed() || ep.Identity != id) {
		return errRequireID
	}
	t.call = ep.Tell(x.authority).Start()
	t.route.try()
	x.watch(t, out)
	native := x.r.Version == message.HTTP2
	a, err := ep.RoundTrip(ctx, endpoint.Call{
		Question: relay.Question{Request: out, Body: x.body, Guard: guard, Interim: x.kept.hint, Sending: t.lease, Now: t.began},
		Hostless: x.r.Authority == "",
		HTTP2:    native,
		Upgrade:  !native && (x.r.Method == "CONNECT" || x.r.Upgrade() != ""),
		Absolute: !x.client.explicit && x.r.Absolute,
	})
	switch {
	case err == nil:
		t.answer, t.res, t.body = a, a.Response, a.Body
		t.watched.head(a.Response)
		x.quiet.moved()
		t.judge()
	case x.guard.Err() != nil:
		return x.guard.Err()
	case t.guard.Err() != nil:
		return t.guard.Err()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// drop ends an attempt whose response is not used.
func (t *try) drop(now time.Duration) {
	grpc := t.res.Fields.Get("grpc-status")
	if grpc == "" {
		grpc = t.body.Trailer().Get("grpc-status")
	}
	verdict := balance.Failure
	if t.res.Status == 429 || grpc == "8" {
		verdict = balance.Limited
	}
	t.answer.Drop()
	t.end(tell.End{Status: t.res.Status, GRPC: tell.Code(grpc), Success: false}, outcome{status: t.res.Status, grpc: grpc}, verdict, now)
}

// isRead reports whether an error is one of reading the response.
func isRead(err error) bool {
	_, ok := errors.AsType[*relay.ReadError](err)
	return ok
}

// fail ends an attempt without a response.
func (t *try) fail(x *exchange, err error) {
	verdict := balance.Failure
	if endpoint.Unsent(err) || x.gone() || errors.Is(err, errRequireID) || errors.Is(err, relay.ErrBody) {
		verdict = balance.Neutral
	}
	var e tell.End
	if !x.gone() {
		e = x.endOf(x.faultOf(err))
	} else {
		t.lease.FirstByte() // no fault, but it has taken so long at least (spec/proxy.md §7.3)
	}
	t.watched.failed = err
	t.end(e, outcome{}, verdict, x.o.since()) // the backend's outcome is known when it is known not to move
}

// end counts the end of an attempt at a time.
func (t *try) end(e tell.End, o outcome, v balance.Verdict, now time.Duration) {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.watched.over(t)
	if e != (tell.End{}) {
		t.route.end(true, e.Status, e.Success, 0)
	}
	t.call.End(e, now-t.began)
	t.backend.tell.end(now-t.began, o)
	t.lease.End(v)
}
