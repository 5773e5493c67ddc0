package outbound

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/weftmesh/weft/proxy/internal/balance"
	"github.com/weftmesh/weft/proxy/internal/endpoint"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

// way is where a connection's bytes go.
type way struct {
	split   split
	told    *tell.Connections
	use     use
	closes  resolve.Closing
	invalid bool // the policy could not be read
}

// opaque carries bytes that nobody looks at. It owns the connection.
func (o *Outbound) opaque(conn net.Conn, to resolve.Target, s *stack) {
	p := s.policy
	o.carry(conn, to, p.Parent, way{split: s.tcp, told: s.bytes(), use: forTCP, closes: p.Closes, invalid: p.Protocol == resolve.Invalid})
}

// carry carries bytes. It owns the connection.
func (o *Outbound) carry(conn net.Conn, to resolve.Target, parent resolve.Ref, w way) {
	w.told.Opened()
	end := tell.Well
	defer func() { w.told.Closed(end) }()
	l, peer, err := o.reach(w, parent)
	if err != nil {
		end = endingOf(err)
		o.drop(conn, to, err)
		return
	}
	join(conn, peer)
	l.End(balance.Success)
}

func endingOf(err error) tell.Ending {
	_, unsent := errors.AsType[*noDispatcher](err)
	switch {
	case errors.Is(err, errInvalid):
		return tell.InvalidPolicy
	case errors.Is(err, resolve.ErrForbidden):
		return tell.Forbidden
	case errors.Is(err, resolve.ErrNoBackend), unsent:
		return tell.InvalidBackend
	}
	return tell.Unexpected
}

// reach connects to an endpoint of the target, another if one cannot be reached. The
// filters of the route come first, then those of the backend.
func (o *Outbound) reach(w way, parent resolve.Ref) (*lease, net.Conn, error) {
	if w.invalid {
		return nil, nil, errInvalid
	}
	if err := w.closes.Err(); err != nil {
		return nil, nil, err
	}
	w.split.usedBy(w.use, parent)
	b, err := w.split.choose(random)
	if err == nil {
		err = b.Closes.Err()
	}
	switch {
	case err != nil:
		return nil, nil, err
	case b.err != nil:
		return nil, nil, b.err
	case b.pool == nil:
		return nil, nil, &noDispatcher{b.Ref}
	}
	if !b.pool.forward {
		if by := b.pool.tell.user(w.use, parent); by != nil {
			by.direct.Add(1)
		}
	}
	var avoid *member
	began := time.Now()
	for moves := 0; ; moves++ {
		l, err := b.pool.Acquire(o.life, avoid)
		if err != nil {
			return nil, nil, err
		}
		peer, err := l.Client.Dial(o.life)
		if err == nil {
			l.FirstByte()
			return l, peer, nil
		}
		l.End(balance.Neutral)
		var dial *endpoint.DialError
		identity := errors.As(err, &dial) && dial.Identity && !b.pool.Ready(l.Member)
		if b.pool.forward || !endpoint.Unsent(err) || identity || moves >= maxMoves || time.Since(began) > b.pool.failfast {
			return nil, nil, err
		}
		avoid = l.Member
	}
}

// join copies both ways until both have ended. The end of one direction is
// passed on as such: the other may still have much to say.
func join(a, b net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pipe(a, b)
	}()
	pipe(b, a)
	<-done
	_ = a.Close()
	_ = b.Close()
}

// pipe copies one way. A failure ends both directions.
func pipe(to, from net.Conn) {
	defer wire.Survive(to, from)
	if wire.Copy(to, from) == nil && closeWrite(to) == nil {
		return
	}
	_ = to.Close()
	_ = from.Close()
}

var errNoHalf = errors.New("the connection cannot be half closed")

func closeWrite(c any) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errNoHalf
}

// switched carries what follows an answer that leaves HTTP.
func (x *exchange) switched(t *try) error {
	res := t.res
	peer, ok := t.answer.Tunnel()
	if !ok {
		t.answer.Drop()
		t.end(tell.End{Status: res.Status, Error: tell.Unclassified}, outcome{status: res.Status, err: endUnknown}, balance.Neutral, x.o.since())
		return fmt.Errorf("the endpoint switched protocols unasked")
	}
	x.guard.Set(nil)
	hold := x.o.deps.Drain.Hold()
	defer hold()
	to := res.Fields.Get("upgrade")
	responseFields(&res.Fields)
	res.Fields.Del("content-length") // what follows has no framing
	if res.Status == 101 {
		res.Fields.Add("Connection", "Upgrade")
		res.Fields.Add("Upgrade", to)
	}
	conn, err := x.tunnel(res)
	if err == nil {
		t.lease.FirstByte()
		join(conn, peer)
	}
	_ = peer.Close()
	x.finish(t, nil, x.o.since())
	return nil
}

// tunnel sends the head of an answer and takes the client's connection over.
func (x *exchange) tunnel(res *message.Response) (net.Conn, error) {
	taker, ok := x.Client.(interface{ Tunnel() (net.Conn, error) })
	if !ok {
		return nil, message.ErrAborted
	}
	if err := x.Respond(res); err != nil {
		return nil, err
	}
	return taker.Tunnel()
}
