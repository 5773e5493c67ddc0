package outbound

import (
	"context"
	"errors"
	"time"

	"github.com/weftmesh/weft/proxy/internal/balance"
	"github.com/weftmesh/weft/proxy/internal/endpoint"
	"github.com/weftmesh/weft/proxy/internal/fate"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/relay"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
	"github.com/weftmesh/weft/services/kit/pause"
)

const (
	// maxMoves bounds how often a request that nobody has seen is sent elsewhere.
	maxMoves = 32
	// minReplay is how much of a body is kept so that a request can be moved from
	// an endpoint that has not looked at it, in bytes.
	minReplay = 64 << 10
)

// send tries until there is a response to give, and gives it.
func (x *exchange) send() error {
	x.Guard(&x.guard)
	defer x.Guard(nil)
	ctx, limits := x.Context(), x.limits
	if limits.Request <= 0 && limits.Response <= 0 && limits.Idle <= 0 {
		return x.ask(ctx, nil) // and nothing below is made
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x.timed = true
	stop := func(err error) { cancel(err); x.guard.Abort(err) }
	if limits.Request > 0 {
		late := errRequestTimeout
		if x.rule.Profile != nil {
			late = errProfileTimeout
		}
		defer time.AfterFunc(limits.Request, func() { stop(late) }).Stop()
	}
	if limits.Idle > 0 {
		x.quiet = newQuiet(limits.Idle, stop)
		defer x.quiet.end()
	}
	if limits.Response <= 0 {
		return x.ask(ctx, nil)
	}
	timer := time.AfterFunc(1<<62, func() { stop(errResponseTimeout) })
	defer timer.Stop()
	return x.ask(ctx, func() { timer.Reset(limits.Response) })
}

// ask is send without its timeouts. sent is called when the question is whole; it
// may be nil.
func (x *exchange) ask(ctx context.Context, sent func()) error {
	if body := x.Body(); body != nil {
		x.body = relay.NewReplay(x.tee(x.quiet.body(body)), max(minReplay, x.retry.MaxBytes), sent)
		defer func() {
			if x.whole {
				x.body.Free()
			} else {
				x.body.End()
			}
			if x.copies != nil {
				x.copies.End()
			}
		}()
	} else if sent != nil {
		sent()
	}
	x.rule.profile.start()
	x.deposit()
	t, err := x.attempts(ctx)
	if why := x.guard.Err(); err != nil && why != nil {
		err = why
	}
	if err != nil {
		return err
	}
	return x.respond(t)
}

// attempts returns the response that counts. Two kinds of trying again are kept
// apart: moving a request that no endpoint has looked at, which is always right,
// and retrying one that failed, which the route must allow.
func (x *exchange) attempts(ctx context.Context) (*try, error) {
	var avoid *member
	var deadline time.Time // of moving
	retries, moves := 0, 0
	resent := false // once, after a connection broke under it
	safe := x.body == nil && x.r.Safe()
	for {
		t, m, err := x.attempt(ctx, avoid, deadline, retries < x.retry.Limit)
		if err == nil {
			if f := x.elsewhere(t, m, moves, safe && !resent); f != "" {
				resent = resent || f == fate.Lost
				moves++
				x.moving = true
				if deadline.IsZero() {
					deadline = time.Now().Add(x.failfast())
				}
				avoid = m
				continue
			}
			if !x.retriable(t) {
				if retries > 0 {
					x.count(x.retries().Successes)
				}
				return t, nil
			}
			if retries >= x.retry.Limit {
				x.count(x.retries().Limit)
				return t, nil
			}
			if _, err := x.rule.split.choose(random); err != nil { // what failed is better than nothing
				x.count(x.retries().Overflow)
				return t, nil
			}
			if !x.afford() {
				return t, nil
			}
			t.drop(x.o.since())
		} else {
			moved := x.moves(err, m, moves)
			if !moved && safe && !resent && lost(err) {
				moved, resent = true, true
			}
			if moved {
				moves++
				x.moving = true
				if deadline.IsZero() && m != nil {
					deadline = time.Now().Add(x.failfast())
				}
				avoid = m
				continue
			}
			x.missed(err)
			if retries >= x.retry.Limit || x.rule.Profile != nil || !x.repeatable() || ctx.Err() != nil ||
				!errors.Is(err, balance.ErrFailfast) && !errors.Is(err, errHeadersTimeout) && !errors.Is(err, errAttemptTimeout) {
				return nil, err
			}
		}
		avoid = m
		if !x.backoff(ctx, retries) {
			return nil, context.Cause(ctx)
		}
		retries++
		x.count(x.retries().Requests)
	}
}

func (x *exchange) retries() *tell.Retries { return x.rule.tell.retries() }

func (x *exchange) count(f tell.Family) { x.o.deps.Metrics.Counter(f, x.told().labels).Inc() }

// again reports whether the request can be sent once more.
func (x *exchange) again() bool { return x.body == nil || x.body.Again() }

// repeatable reports whether a request that may have been seen can be sent once
// more: the route bounds how much of a body is kept for that.
func (x *exchange) repeatable() bool {
	return x.body == nil || x.r.Length <= int64(x.retry.MaxBytes) && x.body.Within(x.retry.MaxBytes)
}

// moves reports whether the request may go to another endpoint.
func (x *exchange) moves(err error, m *member, moves int) bool {
	if m == nil || moves >= maxMoves || !endpoint.Unsent(err) || !x.again() || x.guard.Err() != nil {
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
	return !errors.As(err, &d) && !errors.Is(err, message.ErrGone) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, errRequestTimeout) && !errors.Is(err, errResponseTimeout) && !errors.Is(err, errHeadersTimeout) &&
		!errors.Is(err, balance.ErrFailfast) && !errors.Is(err, balance.ErrFull) && !errors.Is(err, errShed) && faultOf(err).broken
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
	b := x.retry.Backoff
	if b.Min <= 0 {
		return ctx.Err() == nil
	}
	pause.For(ctx, balance.Backoff(b).After(n, random()))
	return ctx.Err() == nil
}

// attempt sends the request to one endpoint of one backend. m is the endpoint,
// if it came to one. It does not wait for an endpoint beyond the deadline, if
// there is one. more says that another try would be allowed. A backend counts what
// it is asked to do, not how often that moves.
func (x *exchange) attempt(ctx context.Context, avoid *member, deadline time.Time, more bool) (*try, *member, error) {
	var err error
	b, l := (*backend)(nil), (*lease)(nil)
	if !x.moving {
		x.from = nil // what fails before there is a backend is none's
	}
	if x.sticky != nil && avoid == nil {
		b, l = x.sticky.place(x.rule.split)
	}
	if b == nil {
		if b, err = x.rule.split.choose(random); err != nil {
			return nil, nil, err
		}
	}
	if !x.moving || x.from != b.tell {
		b.tell.start()
	}
	x.from, x.moving = b.tell, false
	x.tries++
	out := x.outgoing()
	for _, filters := range [][]resolve.Filter{x.rule.Filters, b.Filters} {
		if err := x.filter(filters, out); err != nil {
			if l != nil {
				l.End(balance.Neutral)
			}
			return nil, nil, err
		}
	}
	if x.rule.mirrored && avoid == nil && x.pool == nil {
		x.mirror([2][]mirrorTo{x.rule.mirrors, b.mirrors}, out)
	}
	switch {
	case b.err != nil:
		return nil, nil, b.err
	case b.pool == nil:
		return nil, nil, &noDispatcher{b.Ref}
	}
	x.pool = b.pool
	if l == nil {
		wait, done := ctx, context.CancelFunc(func() {})
		if !deadline.IsZero() {
			wait, done = context.WithDeadlineCause(ctx, deadline, balance.ErrFailfast)
		}
		l, err = b.pool.AcquireAt(wait, avoid, x.now())
		done()
		if err != nil {
			return nil, nil, err
		}
	}
	t := &x.kept.try
	if x.tries > 1 {
		t = new(try)
	}
	t.lease, t.backend, t.began, t.route = l, b, l.Began(), x.rule.profile
	guard := &x.guard
	if more && x.retry.Timeout > 0 || x.limits.Attempt > 0 {
		within, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		x.timed = true
		ctx, guard = within, &t.guard
		x.guard.Set(guard)
		end := func(err error) { cancel(err); t.guard.Abort(err) }
		if x.limits.Attempt > 0 {
			t.timer = time.AfterFunc(x.limits.Attempt, func() { end(errAttemptTimeout) })
		}
		if more && x.retry.Timeout > 0 {
			defer time.AfterFunc(x.retry.Timeout, func() { end(errHeadersTimeout) }).Stop()
		}
	}
	if err = x.roundTrip(ctx, out, t, guard); err != nil {
		x.guard.Set(nil)
		if broken := x.body.Broken(); broken != nil {
			err = broken // the client's doing, not the endpoint's
		}
		t.fail(x, err)
		return nil, l.Member, err
	}
	return t, l.Member, nil
}
