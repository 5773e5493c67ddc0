package outbound

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/weftmesh/weft/proxy/internal/balance"
	"github.com/weftmesh/weft/proxy/internal/clock"
	"github.com/weftmesh/weft/proxy/internal/endpoint"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/mirror"
	"github.com/weftmesh/weft/proxy/internal/relay"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

const (
	// maxMirrors bounds the copies under way at once; what is beyond is not copied.
	maxMirrors = 1000
	// mirrorTime bounds one copy whose request has no timeout.
	mirrorTime = 30 * time.Second
	// mirrorAnswer is how much of an answer nobody wants is read so that its
	// connection can be used again, in bytes.
	mirrorAnswer = 1 << 20
)

// mirrorTo is where copies of a rule's or a backend's requests go.
type mirrorTo struct {
	backend
	ratio float64
}

// mirrors binds the mirrors among filters.
func (o *Outbound) mirrors(s *stack, filters []resolve.Filter) []mirrorTo {
	var out []mirrorTo
	for _, f := range filters {
		if f.Mirror == nil {
			continue
		}
		to := o.split(s, resolve.Split{Kind: resolve.SplitFirst, Backends: []resolve.Backend{f.Mirror.To}}, resolve.Accrual{}, nil)
		if to.backends[0].pool != nil {
			out = append(out, mirrorTo{to.backends[0], f.Mirror.Ratio})
		}
	}
	return out
}

// tee makes the request's body one that can be copied, if the rule may ask for
// copies.
func (x *exchange) tee(body message.Body) message.Body {
	if !x.rule.mirrored || body == nil {
		return body
	}
	x.copies = &mirror.Tee{Body: body}
	return x.copies
}

// mirror sends copies of a request on their way. Nothing that becomes of them
// concerns the request.
func (x *exchange) mirror(lists [2][]mirrorTo, out *message.Request) {
	for _, to := range lists[0] {
		x.copyTo(to, out)
	}
	for _, to := range lists[1] {
		x.copyTo(to, out)
	}
}

func (x *exchange) copyTo(to mirrorTo, out *message.Request) {
	if x.r.Method == "CONNECT" || x.r.Upgrade() != "" || random() >= to.ratio {
		return // nobody is at the other end of a copied tunnel
	}
	if x.o.copying.Add(1) > maxMirrors {
		x.o.copying.Add(-1)
		return
	}
	// The client's exchange may be over, and its memory another's, before the copy is.
	r := *out
	r.Method, r.Scheme, r.Authority, r.Target = strings.Clone(r.Method), strings.Clone(r.Scheme), strings.Clone(r.Authority), strings.Clone(r.Target)
	r.Fields = mirror.Keep(r.Fields)
	var body *relay.Replay
	if x.copies != nil {
		body = relay.NewReplay(x.copies.Copy(), 0, nil)
	}
	within := x.limits.Request
	if within <= 0 {
		within = mirrorTime
	}
	ctx, cancel := context.WithTimeout(x.o.life, within)
	native := x.r.Version == message.HTTP2
	go func() {
		defer x.o.copying.Add(-1)
		defer cancel()
		defer wire.Survive()
		to.send(ctx, endpoint.Call{Question: relay.Question{Request: &r, Body: body}, HTTP2: native})
	}()
}

// send sends a copy and forgets the answer.
func (to *mirrorTo) send(ctx context.Context, c endpoint.Call) {
	defer c.Body.End()
	l, err := to.pool.Acquire(ctx, nil)
	if err != nil {
		return
	}
	var guard relay.Guard
	c.Guard, c.Sending, c.Now = &guard, l, l.Began()
	defer context.AfterFunc(ctx, func() { guard.Abort(context.Cause(ctx)) })()
	a, err := l.Client.RoundTrip(ctx, c)
	if err != nil {
		if !endpoint.Unsent(err) {
			l.FirstByte() // it has taken so long at least
		}
		l.End(balance.Neutral)
		return
	}
	for read := 0; ; {
		p, err := a.Body.Next()
		l.FirstByte()
		if errors.Is(err, io.EOF) {
			a.Close(clock.Now())
			break
		}
		if read += len(p); err != nil || read > mirrorAnswer {
			a.Drop()
			break
		}
	}
	l.End(balance.Success)
}
