package h1

import (
	"errors"
	"os"
	"time"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

const (
	// linger is how long the rest of a body that nobody wants is waited for, and
	// leftover how much of it is read, in bytes, to save the connection.
	linger   = 20 * time.Millisecond
	leftover = 256 << 10
	// parting is how long a client that we hang up on may take to end its side, or to
	// read anything of its answer.
	parting = 500 * time.Millisecond
)

// refuse answers a request that is none.
func (c *Conn) refuse(status int) {
	r := &message.Response{Status: status}
	b, _ := appendResponse(wire.Get(256), r, message.HTTP11, "", true)
	_ = c.nc.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_, _ = c.nc.Write(b)
	wire.Put(b)
	c.hangUp()
}

// hangUp ends our side, and reads on for a moment: closing a connection on which
// something is unread would take the answer away from the client. From one that sends
// more than is read nothing is taken any more until it has its answer.
func (c *Conn) hangUp() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(parting))
	for n := 0; n < leftover; n += len(c.in.Bytes()) {
		c.in.Take(len(c.in.Bytes()))
		if err := c.in.Fill(wire.Size); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		} else if err != nil {
			break
		}
	}
	wire.Delivered(c.nc, parting)
}

// after makes the connection ready for the next request, if there may be one.
func (c *Conn) after(x *Exchange) bool {
	c.mu.Lock()
	if c.watching != nil || c.taken || c.gone || c.leaving.Load() || !x.settled() {
		c.mu.Unlock()
		if !c.settle(x) {
			return false
		}
		c.mu.Lock()
	}
	c.guard = nil
	c.in.Take(x.body.taken)
	x.body.taken = 0
	if x.out != nil && c.in.Post(x.out) {
		x.out = nil
	}
	if x.out != nil {
		c.mu.Unlock()
		if x.flush() != nil {
			return false
		}
		c.mu.Lock()
	}
	over := c.expect()
	c.mu.Unlock()
	if over {
		c.part()
	}
	return !over
}

// part hangs up if the client has sent what it will get no answer to. At a drain there
// is time for one that has yet to send it: the client did not know that this would be
// the last answer.
func (c *Conn) part() {
	switch {
	case !c.in.Quiet():
		c.hangUp()
	case c.leaving.Load():
		wire.Delivered(c.nc, parting)
	}
}

// settled reports whether the answer is complete and nothing is left of the question.
func (x *Exchange) settled() bool {
	return x.finished && !x.broken && x.keep && !x.spoiled.Load() && x.body.over()
}

// settle does what is left to do after an exchange, and reports whether there may be
// another.
func (c *Conn) settle(x *Exchange) bool {
	c.Guard(nil)
	taken := c.unwatch()
	if taken {
		return false
	}
	if x.out != nil && !x.wrote && !x.finished { // a head alone of an answer that cannot be given
		wire.Put(x.out)
		x.out = nil
	}
	_ = x.flush()
	switch {
	case x.broken || !x.finished:
		return false
	case !x.keep || x.spoiled.Load():
		c.in.Take(x.body.taken)
		x.body.taken = 0
		if x.body.over() {
			c.part()
		} else {
			c.hangUp()
		}
		return false
	}
	if !x.body.over() {
		if x.unread() {
			return false // it may or may not send the body: nobody can know
		}
		_ = c.nc.SetReadDeadline(time.Now().Add(linger))
		for n := 0; n < leftover && x.body.err == nil; {
			p, _ := x.body.next()
			n += len(p)
		}
		if !x.body.over() {
			c.hangUp()
			return false
		}
		if c.nc.SetReadDeadline(time.Time{}) != nil {
			return false
		}
	}
	return true
}
