package outbound

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weftmesh/weft/proxy/internal/balance"
	"github.com/weftmesh/weft/proxy/internal/endpoint"
	"github.com/weftmesh/weft/proxy/internal/fate"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

const (
	// maxMoves bounds how often a request that nobody has seen is sent elsewhere.
	maxMoves = 32
	// minReplay is how much of a body is kept so that a request can be moved from
	// an endpoint that has not looked at it, in bytes.
	minReplay = 64 << 10
)

// try is one attempt: its response and what must be told at its end.
type try struct {
	res     *http.Response
	lease   *lease
	backend *backend
	call    tell.Call
	began   time.Time
	cancel  context.CancelFunc
}

// send tries until there is a response to give, and gives it.
func (x *exchange) send() error {
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	limits := x.rule.Timeouts
	if limits.Request > 0 {
		defer time.AfterFunc(limits.Request, func() { cancel(errRequestTimeout) }).Stop()
	}
	sent := func() {}
	if limits.Response > 0 {
		timer := time.AfterFunc(1<<62, func() { cancel(errResponseTimeout) })
		defer timer.Stop()
		sent = func() { timer.Reset(limits.Response) }
	}
	if empty(x.r) {
		sent()
	} else if x.r.Method != http.MethodConnect {
		x.body = newReplay(x.r.Body, max(minReplay, x.rule.Retry.MaxBytes), sent)
		if x.r.ProtoMajor == 1 { // the server takes the connection back when we return
			defer x.body.end(func(t time.Time) { _ = http.NewResponseController(x.w).SetReadDeadline(t) })
		}
	}
	if x.r.Method == http.MethodConnect {
		return x.proxied(ctx)
	}
	t, err := x.attempts(ctx)
	if err != nil {
		return err
	}
	return x.respond(ctx, t)
}

// attempts returns the response that counts. Two kinds of trying again are kept
// apart: moving a request that no endpoint has looked at, which is always right,
// and retrying one that failed, which the route must allow.
func (x *exchange) attempts(ctx context.Context) (*try, error) {
	var avoid *member
	var deadline time.Time // of moving
	retries, moves := 0, 0
	resent := false // once, after a connection broke under it
	safe := x.body == nil && slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace}, x.r.Method)
	for {
		t, m, err := x.attempt(ctx, avoid, deadline, retries < x.rule.Retry.Limit)
		if err == nil {
			if f := x.elsewhere(t, m, moves, safe && !resent); f != "" {
				resent = resent || f == fate.Lost
				moves++
				if deadline.IsZero() {
					deadline = time.Now().Add(x.failfast())
				}
				avoid = m
				continue
			}
			if !x.retriable(t) {
				if retries > 0 {
					x.count(tell.OutboundHTTPRetrySuccesses)
				}
				return t, nil
			}
			if retries >= x.rule.Retry.Limit {
				x.count(tell.OutboundHTTPRetryLimit)
				return t, nil
			}
			t.drop()
		} else {
			moved := x.moves(err, m, moves)
			if !moved && safe && !resent && lost(err) {
				moved, resent = true, true
			}
			if moved {
				moves++
				if deadline.IsZero() && m != nil {
					deadline = time.Now().Add(x.failfast())
				}
				avoid = m
				continue
			}
			if retries >= x.rule.Retry.Limit || !x.again() || ctx.Err() != nil ||
				!errors.Is(err, balance.ErrFailfast) && !errors.Is(err, errHeadersTimeout) {
				return nil, err
			}
		}
		avoid = m
		if !x.backoff(ctx, retries) {
			return nil, context.Cause(ctx)
		}
		retries++
		x.count(tell.OutboundHTTPRetries)
	}
}

func (x *exchange) count(f tell.Family) { x.o.deps.Metrics.Counter(f, x.rule.tell.labels).Inc() }

// again reports whether the request can be sent once more.
func (x *exchange) again() bool { return x.body == nil || x.body.again() }

// moves reports whether the request may go to another endpoint.
func (x *exchange) moves(err error, m *member, moves int) bool {
	if m == nil || moves >= maxMoves || !endpoint.Unsent(err) || !x.again() || x.r.Context().Err() != nil {
		return false
	}
	var dial *endpoint.DialError
	if !errors.As(err, &dial) {
		return true
	}
	// One address that cannot be reached is an answer; so is a peer that is not who
	// it should be, unless there is another.
	return !x.alone() && (!dial.Identity || x.other(m))
}

// lost reports whether a connection broke under a request that may have been
// seen. Only what may be done twice is then done again (RFC 9110 §9.2.2).
func lost(err error) bool {
	var d *endpoint.DialError
	return !errors.As(err, &d) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, errRequestTimeout) && !errors.Is(err, errResponseTimeout) && !errors.Is(err, errHeadersTimeout) &&
		!errors.Is(err, balance.ErrFailfast) && !errors.Is(err, balance.ErrFull) && !errors.Is(err, errShed) && faultOf(err).short == "IO"
}

// alone reports whether there is no other endpoint than the one just tried.
func (x *exchange) alone() bool { return x.pool != nil && x.pool.forward }

// other reports whether another endpoint is ready at once.
func (x *exchange) other(m *member) bool { return x.pool != nil && x.pool.Ready(m) }

func (x *exchange) failfast() time.Duration {
	if x.pool != nil {
		return x.pool.failfast
	}
	return 3 * time.Second
}

func (x *exchange) backoff(ctx context.Context, n int) bool {
	b := x.rule.Retry.Backoff
	if b.Min <= 0 {
		return ctx.Err() == nil
	}
	pause(ctx, balance.Backoff(b).After(n, random()))
	return ctx.Err() == nil
}

// attempt sends the request to one endpoint of one backend. m is the endpoint,
// if it came to one. It does not wait for an endpoint beyond the deadline, if
// there is one. more says that another try would be allowed.
func (x *exchange) attempt(ctx context.Context, avoid *member, deadline time.Time, more bool) (*try, *member, error) {
	b, err := x.rule.split.choose(random)
	if err != nil {
		return nil, nil, err
	}
	out := x.outgoing()
	for _, filters := range [][]resolve.Filter{x.rule.Filters, b.Filters} {
		if err := x.filter(filters, out); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case b.err != nil:
		return nil, nil, b.err
	case b.pool == nil:
		return nil, nil, &noDispatcher{b.Ref}
	}
	wait, done := ctx, context.CancelFunc(func() {})
	if !deadline.IsZero() {
		wait, done = context.WithDeadlineCause(ctx, deadline, balance.ErrFailfast)
	}
	x.pool = b.pool
	l, err := b.pool.Acquire(wait, avoid)
	done()
	if err != nil {
		return nil, nil, err
	}
	t := &try{lease: l, backend: b, began: time.Now()}
	tryCtx, cancel := context.WithCancelCause(ctx)
	t.cancel = func() { cancel(nil) }
	var headers *time.Timer
	if more && x.rule.Retry.Timeout > 0 {
		headers = time.AfterFunc(x.rule.Retry.Timeout, func() { cancel(errHeadersTimeout) })
	}
	t.res, err = x.roundTrip(tryCtx, out, t) //nolint:bodyclose // respond or drop does
	if headers != nil {
		headers.Stop()
	}
	if err != nil {
		if broken := x.body.broken(); broken != nil {
			err = broken // the client's doing, not the endpoint's
		}
		t.fail(x, err)
		return nil, l.Member, err
	}
	return t, l.Member, nil
}

func (x *exchange) roundTrip(ctx context.Context, out *http.Request, t *try) (*http.Response, error) {
	ep := t.lease.Client
	if id := x.r.Header.Get("L5d-Require-Id"); id != "" && (!ep.Meshed() || ep.Identity != id) {
		return nil, errRequireID
	}
	t.call = ep.Tell(x.authority).Start()
	t.backend.tell.start()
	c := endpoint.Call{Request: x.hinted(out.WithContext(ctx)), HTTP2: x.r.ProtoMajor == 2, Minor: x.r.ProtoMinor, Sending: t.lease.Sending}
	c.Upgrade = x.r.ProtoMajor == 1 && upgrade(x.r.Header) != ""
	c.Absolute = !x.client.explicit && x.r.ProtoMajor == 1 && x.r.URL.Host != "" && x.r.Method != http.MethodConnect
	res, err := ep.RoundTrip(c)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return res, err
}

// retriable reports whether the route wants this response tried again.
func (x *exchange) retriable(t *try) bool {
	want := x.rule.Retry
	if want.Limit == 0 || !x.again() || x.body != nil && !x.body.finished() {
		return false // the answer came before the whole question: it is not about it
	}
	if len(want.GRPC) > 0 {
		code, err := strconv.Atoi(t.peek())
		return err == nil && slices.Contains(want.GRPC, code)
	}
	return slices.ContainsFunc(want.Statuses, func(s resolve.StatusRange) bool {
		return t.res.StatusCode >= s.Low && t.res.StatusCode <= s.High
	})
}

// peek is the gRPC status, if it is in the headers or if trailers come before
// any data. What it reads is put back.
func (t *try) peek() string {
	if s := t.res.Header.Get("Grpc-Status"); s != "" {
		return s
	}
	buf := make([]byte, 512)
	n, err := t.res.Body.Read(buf)
	if n > 0 || err != nil && !errors.Is(err, io.EOF) {
		t.res.Body = &peeked{head: buf[:n], err: err, ReadCloser: t.res.Body}
		return ""
	}
	return t.res.Trailer.Get("Grpc-Status")
}

type peeked struct {
	head []byte
	err  error
	io.ReadCloser
}

func (p *peeked) Read(b []byte) (int, error) {
	if len(p.head) > 0 {
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	}
	if p.err != nil {
		return 0, p.err
	}
	return p.ReadCloser.Read(b)
}

// drop ends an attempt whose response is not used.
func (t *try) drop() {
	grpc := t.res.Header.Get("Grpc-Status")
	if grpc == "" {
		grpc = t.res.Trailer.Get("Grpc-Status")
	}
	_ = t.res.Body.Close()
	t.cancel()
	t.end(tell.End{Status: t.res.StatusCode, GRPC: grpc, Success: false}, balance.Failure)
}

// fail ends an attempt without a response.
func (t *try) fail(x *exchange, err error) {
	t.cancel()
	verdict := balance.Failure
	if endpoint.Unsent(err) || x.r.Context().Err() != nil || errors.Is(err, errRequireID) || errors.Is(err, errBody) {
		verdict = balance.Neutral
	}
	f := faultOf(err)
	t.end(tell.End{Error: f.short}, verdict)
}

func (t *try) end(e tell.End, v balance.Verdict) {
	t.call.End(e)
	t.backend.tell.end(time.Since(t.began), e.Status, e.GRPC, e.Error)
	t.lease.End(v)
}
