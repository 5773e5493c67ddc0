package h2

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/weftmesh/weft/proxy/internal/frame"
)

// bucket counts what must not come too often. The zero value is full.
type bucket struct {
	used float64
	at   time.Time
}

const (
	// resetBurst is how many streams a client may reset in a hurry at once, resetRate
	// how many a second in the long run (CVE-2023-44487).
	resetBurst = 1000
	resetRate  = 200
	// hurry is how young such a stream is. Clients that wait for an answer and give up,
	// thousands a second when a deadline is short, are no attack: as many as MaxStreams
	// bound them, and a mesh's connection is everybody's.
	hurry = 10 * time.Millisecond
)

func (b *bucket) take(now time.Time) bool {
	b.used = max(0, b.used-now.Sub(b.at).Seconds()*resetRate)
	b.at = now
	b.used++
	return b.used <= resetBurst
}

// A ResetError means that the peer has reset the stream.
type ResetError struct{ Code frame.Code }

func (e *ResetError) Error() string { return "the peer has reset the stream: " + e.Code.String() }

// A GoAwayError means that the peer was leaving.
type GoAwayError struct{ Code frame.Code }

func (e *GoAwayError) Error() string { return "the peer is leaving: " + e.Code.String() }

// An UnsentError means that the request has surely not been processed, and may be
// sent elsewhere whatever it is (RFC 9113 §8.7).
type UnsentError struct{ Err error }

func (e *UnsentError) Error() string { return "not processed: " + e.Err.Error() }
func (e *UnsentError) Unwrap() error { return e.Err }

// unsent marks the error of a connection for a stream whose head has not gone out.
func (c *Conn) unsent(s *Stream, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if !c.server && s.first >= c.started {
		return &UnsentError{Err: err}
	}
	return fmt.Errorf("the HTTP/2 connection has ended: %w", err)
}

// forgotten remembers a stream that we have reset: what the peer had sent by then
// is on its way.
func (c *Conn) forgotten(id uint32) {
	if c.resets == nil {
		c.resets = new([256]uint32)
	}
	c.resets[id/2%uint32(len(c.resets))] = id
}

func (c *Conn) resetByUs(id uint32) bool {
	return c.resets != nil && c.resets[id/2%uint32(len(c.resets))] == id
}

// spread is d, and up to a tenth of it more or less, so that connections that began
// together do not end together.
func spread(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d)) //nolint:gosec // spread, not secrecy
}

// timers start what ends a connection by time.
func (c *Conn) timers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	if c.cfg.MaxAge > 0 {
		c.age = time.AfterFunc(spread(c.cfg.MaxAge), c.Shutdown)
	}
	if c.cfg.Idle > 0 {
		c.busy = time.Now()
		c.idle = time.AfterFunc(c.cfg.Idle, c.tired)
	}
	if c.cfg.KeepaliveInterval > 0 {
		c.heard.Store(time.Now().UnixNano())
		c.alive = time.AfterFunc(c.cfg.KeepaliveInterval, c.watch)
	}
}

// tired ends a connection that has been idle for long enough, or looks again when
// that may be: the timer runs on, so that a request sets none.
func (c *Conn) tired() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.idle == nil {
		return
	}
	left := c.cfg.Idle
	if len(c.streams) == 0 {
		left -= time.Since(c.busy)
	}
	if left > 0 {
		c.idle.Reset(left)
		return
	}
	c.shutdown()
}

// rest begins the time that a connection may be idle. It is called with the lock
// held.
func (c *Conn) rest() {
	c.busy = time.Now()
	if c.calm == nil && c.err == nil {
		c.calm = time.AfterFunc(calmAfter, c.soothe)
	}
}

// calmAfter is how long a connection has no streams before it gives back what only
// saves work.
const calmAfter = 5 * time.Second

// soothe does so: an idle connection keeps its tables alone, however many streams
// it has had at once (complaint F18).
func (c *Conn) soothe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch left := calmAfter - time.Since(c.busy); {
	case c.err != nil:
		return
	case len(c.streams) > 0:
		c.calm = nil // the last one's end begins it anew
		return
	case left > 0:
		c.calm.Reset(left)
		return
	}
	c.calm = nil
	c.enc.Shrink()
	c.block, c.blocked = nil, nil
	if c.most > 64 { // a map that has grown stays so
		c.streams = map[uint32]*Stream{}
	}
	c.most = 0
	c.decoding.Lock()
	defer c.decoding.Unlock()
	c.dec.Shrink()
}

// watch asks a silent peer whether it is there, and hangs up if it does not say.
func (c *Conn) watch() {
	quiet := time.Since(time.Unix(0, c.heard.Load()))
	if quiet < c.cfg.KeepaliveInterval {
		c.again(c.cfg.KeepaliveInterval - quiet)
		return
	}
	asked := c.heard.Load()
	timeout := c.cfg.KeepaliveTimeout
	if timeout <= 0 {
		timeout = 20 * time.Second
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.put(frame.AppendPing(c.begin(32), 0, watchful))
	c.alive = time.AfterFunc(timeout, func() {
		if c.heard.Load() == asked {
			c.fail(errSilent)
			_ = c.nc.Close()
			return
		}
		c.watch()
	})
}

func (c *Conn) again(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.alive = time.AfterFunc(d, c.watch)
	}
}

var errSilent = errors.New("the peer has not answered a PING in time")
