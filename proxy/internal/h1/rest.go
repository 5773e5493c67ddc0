package h1

import (
	"errors"
	"net"
	"os"
	"time"
)

// errRests is no failure: the connection is idle and its goroutine may go.
var errRests = errors.New("the connection rests")

// How far an idle connection has come since its last request.
const (
	fresh   uint8 = iota
	idle          // it has been asked once
	rests         // on a goroutine of its own
	settled       // on another, after a collection
)

// Rest asks an idle connection to need less: Serve returns, to be called again on a
// goroutine whose stack no request has grown, for the runtime does not make one as
// small again. It is to be asked every few seconds, with how many collections there
// have been. A new stack is as large as those of all goroutines were in the last one:
// when many connections have just become idle, that was before. So the connection
// rests once more after the next.
func (c *Conn) Rest(collections uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy || c.leaving.Load() || c.gone || c.taken || c.resting || c.calm == settled || c.calm == rests && c.rested == collections {
		return
	}
	c.calm++
	if c.calm > idle {
		c.rested = collections
		c.resting = c.nc.SetReadDeadline(time.Unix(1, 0)) == nil
	}
}

// woken is told how waiting for a request has ended, before anything else is done, and
// returns what that means: errRests if it is over because the connection rests, and
// net.ErrClosed if we closed it meanwhile, even if a request was read, for it could not
// be answered.
func (c *Conn) woken(err error, began bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed && err == nil {
		return net.ErrClosed
	}
	if began {
		c.half = false
		if !c.due.IsZero() && err == nil {
			_ = c.nc.SetReadDeadline(time.Time{}) // the body has its own time
		}
	}
	over := false
	if c.resting {
		c.resting = false
		_ = c.nc.SetReadDeadline(time.Time{}) // if that fails, so does reading
		over = !began && !c.leaving.Load() && errors.Is(err, os.ErrDeadlineExceeded)
	}
	if c.last && err == nil { // it came before the wait was ended
		_ = c.nc.SetReadDeadline(time.Time{})
	}
	if !over {
		if err == nil {
			c.busy, c.calm = true, fresh
		}
		return err
	}
	// What only saves work, until the next request makes it again.
	if c.alarm != nil {
		c.alarm.Stop()
		c.alarm, c.armed = nil, false
	}
	c.life.Store(nil)
	return errRests
}
