package outbound

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/weftmesh/weft/proxy/internal/classify"
	"github.com/weftmesh/weft/proxy/internal/clock"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/resolve"
)

// retriable reports whether the route wants this response tried again.
func (x *exchange) retriable(t *try) bool {
	want := x.retry
	if want.Limit == 0 || !x.repeatable() || x.body != nil && !x.body.Finished() {
		return false // the answer came before the whole question: it is not about it
	}
	if p := x.rule.Profile; p != nil {
		return !p.Classes.Success(t.res.Status, t.peek(x.grpc))
	}
	if slices.ContainsFunc(want.Statuses, func(s resolve.StatusRange) bool {
		return t.res.Status >= s.Low && t.res.Status <= s.High
	}) {
		return true
	}
	if len(want.GRPC) == 0 {
		return false
	}
	code, err := strconv.Atoi(t.peek(true))
	return err == nil && slices.Contains(want.GRPC, code)
}

// afford takes what one more try costs from the service's budget, where there is
// such.
func (x *exchange) afford() bool {
	p := x.rule.Profile
	if p == nil || p.Budget == nil {
		return true
	}
	x.rule.profile.failed.Inc()
	if p.Budget.Withdraw(x.o.since()) {
		return true
	}
	x.rule.profile.broke.Inc()
	return false
}

// deposit counts a request in the service's budget.
func (x *exchange) deposit() {
	if p := x.rule.Profile; p != nil && p.Budget != nil {
		p.Budget.Deposit(x.o.since())
	}
}

// since is the time of balancers, budgets and requests.
func (o *Outbound) since() time.Duration { return clock.Now() }

// now is the time, for which nobody looks at the clock when the exchange has just
// begun.
func (x *exchange) now() time.Duration {
	if x.tries > 1 || x.waited {
		return x.o.since()
	}
	return x.began
}

// judge tells the balancer of an answer that counts against its endpoint beyond
// the time it took.
func (t *try) judge() {
	if t.backend.pool.penalty <= 0 {
		return
	}
	if grpc := t.res.Fields.Get("grpc-status"); classify.Penalized(t.res.Status, grpc) {
		asked, _ := classify.Hint(t.res.Status, t.res.Fields, time.Now())
		t.lease.Penalize(asked)
	}
}

// peek is the gRPC status, if it is in the headers, or in trailers that come
// before any data, or (wait: the answer is gRPC's) at once behind a single piece of
// it. What it reads is put back, so that nothing is lost (complaints F6, F8).
func (t *try) peek(wait bool) string {
	if s := t.res.Fields.Get("grpc-status"); s != "" || !wait {
		return s
	}
	p, err := t.body.Next()
	if err == nil && t.body.Ready() {
		first := slices.Clone(p) // it is the body's until the next call
		p, err = t.body.Next()
		if err == nil || !errors.Is(err, io.EOF) {
			t.body = &peeked{pieces: [2][]byte{first, p}, err: err, Body: t.body}
			return ""
		}
		t.body = &peeked{pieces: [2][]byte{first}, err: err, Body: t.body}
		return t.body.Trailer().Get("grpc-status")
	}
	if err == nil || !errors.Is(err, io.EOF) {
		t.body = &peeked{pieces: [2][]byte{p}, err: err, Body: t.body}
		return ""
	}
	return t.body.Trailer().Get("grpc-status")
}

// peeked is a body of which one or two pieces have been looked at.
type peeked struct {
	pieces [2][]byte
	at     int
	err    error // that came behind them
	message.Body
}

func (p *peeked) Next() ([]byte, error) {
	for p.at < len(p.pieces) {
		p.at++
		if piece := p.pieces[p.at-1]; piece != nil {
			return piece, nil
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	return p.Body.Next()
}

func (p *peeked) Ready() bool {
	return p.err != nil || slices.ContainsFunc(p.pieces[p.at:], func(b []byte) bool { return b != nil }) || p.Body.Ready()
}
