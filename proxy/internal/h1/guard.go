package h1

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

// patience is how long an exchange takes before it is worth a goroutine to see
// whether the client is still there. A proxy that is short of time must not spend it
// on that.
const patience = 200 * time.Millisecond

// Guard names what is to be told when the client goes. When Guard(nil) returns
// nobody is being told.
func (c *Conn) Guard(a message.Aborter) {
	c.mu.Lock()
	c.guard = a
	gone := c.gone
	if a == nil {
		c.mu.Unlock()
		if gone {
			c.telling.Lock()
			c.telling.Unlock() //nolint:staticcheck // waits for whoever tells
		}
		return
	}
	if !c.armed && !gone {
		c.armed, c.seen = true, c.number
		if c.alarm == nil {
			c.alarm = time.AfterFunc(patience, c.ring)
		} else {
			c.alarm.Reset(patience)
		}
	}
	c.mu.Unlock()
	if gone {
		a.Abort(message.ErrGone)
	}
}

// ring comes while requests are being served. One that it sees twice takes long.
func (c *Conn) ring() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.guard == nil || c.gone || c.watching != nil {
		c.armed = false
		return
	}
	if c.seen == c.number && c.x.read.Load() {
		c.armed = false
		c.watching = make(chan struct{})
		go c.watch(c.watching)
		return
	}
	c.seen = c.number
	c.alarm.Reset(patience)
}

// watch reads what comes while the client waits for its answer: another request,
// or its end.
func (c *Conn) watch(done chan struct{}) {
	defer close(done)
	// What is pipelined waits in the buffer; a client that has no room for more
	// there is not watched.
	for {
		err := c.in.Fill(wire.Size)
		if errors.Is(err, io.ErrShortBuffer) {
			return
		}
		if err != nil {
			break
		}
	}
	c.mu.Lock()
	if c.guard == nil && !c.gone { // woken by unwatch
		c.mu.Unlock()
		return
	}
	c.gone = true
	a := c.guard
	c.guard = nil
	c.life.Load().end()
	c.telling.Lock()
	defer c.telling.Unlock()
	c.mu.Unlock()
	if a != nil {
		a.Abort(message.ErrGone)
	}
}

// unwatch ends the watching, and reports whether the connection is not ours any
// more.
func (c *Conn) unwatch() bool {
	c.mu.Lock()
	c.guard = nil
	watching := c.watching
	taken := c.taken
	c.mu.Unlock()
	if watching != nil && !taken {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
		<-watching
		_ = c.nc.SetReadDeadline(time.Time{})
		c.mu.Lock()
		c.watching = nil
		c.mu.Unlock()
	}
	return taken
}

// lifetime is how long a client is there.
type lifetime struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// live makes the client's lifetime, unless there is one.
func (c *Conn) live() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.life.Load()
	if l == nil {
		l = new(lifetime)
		l.ctx, l.cancel = context.WithCancelCause(context.Background())
		if c.gone {
			l.end()
		}
		c.life.Store(l)
	}
	return l.ctx
}

// end tells who waits that the client has gone. There may be no lifetime.
func (l *lifetime) end() {
	if l != nil {
		l.cancel(message.ErrGone)
	}
}
