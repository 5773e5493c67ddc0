package relay

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/weftmesh/weft/proxy/internal/h1"
	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/spare"
)

// A Question is a request to be sent.
type Question struct {
	Request *message.Request
	Body    *Replay // nil if there is none
	Guard   *Guard  // is told what to end
	// Interim passes 1xx answers on; nil wants none.
	Interim func(*message.Response) error
	Sending interface{ Sending() } // is told when there is a connection to send on, if that had to be made; may be nil
	Now     time.Duration          // by clock, a moment ago; 0 if nobody has looked
}

// An Answer is the head of an answer, and its body. Close or Drop must be called,
// and the answer not be used after Close.
type Answer struct {
	*message.Response
	Body message.Body

	sent  Upload
	guard *Guard
	once  bool
	call  *h1.Call
	pool  *h1.Pool
	s     *h2.Stream
}

// An UnsentError means that nobody has looked at the request: it may be sent
// again, or elsewhere, whatever it is.
type UnsentError struct{ Err error }

func (e *UnsentError) Error() string { return "not sent: " + e.Err.Error() }
func (e *UnsentError) Unwrap() error { return e.Err }

// answers are used again after Close.
var answers = spare.Pool[Answer]{Small: true}

func (a *Answer) free() {
	*a = Answer{sent: Upload{done: a.sent.done, rests: a.sent.rests}}
	answers.Put(a)
}

var errDropped = errors.New("the answer is not wanted")

// reader is a body from the start; nil if there is none.
func (q *Question) reader() message.Body {
	if q.Body == nil {
		return nil
	}
	return q.Body.Reader()
}

func (q *Question) again() bool { return q.Body == nil || q.Body.Again() }

func (q *Question) sending() {
	if q.Sending != nil {
		q.Sending.Sending()
	}
}

// hostless reports whether nobody can say whom the request is for: such share no
// connection (spec/proxy.md §5.8).
func hostless(r *message.Request) bool {
	host, named := r.Fields.Find("host")
	return host == "" && (named || r.Authority == "")
}

// Over1 asks over HTTP/1. A connection that was idle may turn out to be closed:
// then a new one is taken, if the request may be sent twice or has not gone out.
func Over1(ctx context.Context, pool *h1.Pool, q Question) (*Answer, error) {
	safe := q.Request.Safe() && q.Body == nil
	r := q.Request
	once := r.Version == message.HTTP10 || hostless(r)
	for want := (h1.Want{Host: h1.Host{Name: r.Authority, Absolute: r.Absolute}, Sure: !safe, Fresh: once, Now: q.Now}); ; want.Fresh = true {
		call, err := pool.Get(ctx, want)
		if err != nil {
			return nil, err
		}
		if !call.Used() { // one that was there already is sent on at once
			q.sending()
		}
		a, err := ask1(call, pool, &q)
		if err == nil {
			a.once = once
			return a, nil
		}
		sent, used := call.Sent(), call.Used()
		q.Guard.Set(nil)
		call.Abort(err)
		call.Close()
		switch {
		case q.Guard.Err() != nil:
			return nil, q.Guard.Err()
		case q.Body.Broken() != nil:
			return nil, q.Body.Broken()
		case used && !want.Fresh && (safe || !sent) && q.again():
			continue
		case !sent:
			return nil, &UnsentError{err}
		}
		return nil, err
	}
}

func ask1(call *h1.Call, pool *h1.Pool, q *Question) (*Answer, error) {
	q.Guard.Set(call)
	call.Begin(q.Request)
	a := answers.Get() // left to the collector if anything goes wrong
	err := a.sent.send(q.reader(), call)
	if err != nil && !call.Sent() {
		return nil, err
	}
	// The server may have answered, and hung up, before it had everything.
	res, late := Head(call, q.Interim)
	if late != nil {
		if err == nil {
			err = late
		}
		return nil, err
	}
	a.Response, a.Body, a.guard, a.call, a.pool = res, call, q.Guard, call, pool
	return a, nil
}

// Over2 asks over HTTP/2.
func Over2(ctx context.Context, line *h2.Line, q Question) (*Answer, error) {
	c, err := line.Get(ctx)
	if errors.Is(err, h2.ErrGone) {
		return nil, &UnsentError{err}
	}
	if err != nil {
		return nil, err
	}
	q.sending()
	s, err := c.Open(ctx, q.Request, q.Body == nil)
	if err != nil {
		return nil, unsent(err)
	}
	q.Guard.Set(s)
	a := answers.Get()
	err = a.sent.send(q.reader(), s)
	var res *message.Response
	if err == nil || !errors.Is(err, ErrBody) {
		res, err = Head(s, q.Interim)
	}
	if err == nil {
		a.Response, a.Body, a.guard, a.s = res, s, q.Guard, s
		return a, nil
	}
	q.Guard.Set(nil)
	s.Abort(err)
	s.Close()
	switch {
	case q.Guard.Err() != nil:
		return nil, q.Guard.Err()
	case q.Body.Broken() != nil:
		return nil, q.Body.Broken()
	}
	return nil, unsent(err)
}

func unsent(err error) error {
	if u, ok := errors.AsType[*h2.UnsentError](err); ok {
		return &UnsentError{u}
	}
	return err
}

// Close ends the exchange when its answer has been passed on, or cannot be. now is by
// clock.
func (a *Answer) Close(now time.Duration) {
	a.sent.Stop()
	a.guard.Set(nil)
	if a.s != nil {
		a.s.Close()
	} else if a.once {
		a.call.Close()
	} else {
		a.pool.Put(a.call, now)
	}
	a.free()
}

// Drop ends the exchange without its answer; the body may be read again at once.
func (a *Answer) Drop() {
	a.guard.Set(nil)
	if a.s != nil {
		a.s.Abort(errDropped)
		a.s.Close()
		return
	}
	a.call.Abort(errDropped)
	a.call.Close()
}

// Tunnel takes the connection over, if it is one of HTTP/1.
func (a *Answer) Tunnel() (net.Conn, bool) {
	if a.call == nil {
		return nil, false
	}
	a.sent.Stop()
	a.guard.Set(nil)
	return a.call.Tunnel(), true
}
