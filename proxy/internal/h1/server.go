package h1

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

// Config is how clients are served. Handle must be set.
type Config struct {
	// Handle answers a request. It is called on the connection's goroutine, and the
	// next request is read when it has returned.
	Handle  func(*Exchange)
	MaxHead int // of a request, in bytes; 0 means 256 KiB
}

// A Conn is a client's connection.
type Conn struct {
	cfg Config
	nc  net.Conn
	to  net.Conn // nc, or what is below it as far as writing goes
	in  wire.Reader
	x   Exchange // of the request that is being served

	mu      sync.Mutex
	busy    bool        // a request is being served or read
	half    bool        // and a part of its head is there; the rest is waited for
	leaving atomic.Bool // is set while mu is held
	gone    bool        // the client has, or we hung up on it
	taken   bool        // by a tunnel
	closed  bool        // by us: what is read from now on is no request
	last    bool        // its last answer was not out when it was to leave

	guard    message.Aborter
	telling  sync.Mutex               // is held while the guard is told; taken within mu
	life     atomic.Pointer[lifetime] // what requests' contexts are; made when one asks
	alarm    *time.Timer
	armed    bool
	seen     uint64 // the exchange that the alarm saw last
	number   uint64 // of the exchange
	calm     uint8
	resting  bool   // it is about to
	rested   uint64 // how many collections there had been then
	watching chan struct{}
	due      time.Time // when a head has to be whole, if the connection is to end
}

// NewConn returns the server's side of a connection; Serve serves it.
func NewConn(nc net.Conn, cfg Config) *Conn {
	if cfg.MaxHead <= 0 {
		cfg.MaxHead = 256 << 10
	}
	c := &Conn{cfg: cfg, nc: nc, to: wire.Passing(nc)}
	c.in.Reset(nc)
	return c
}

// Serve answers requests until the connection ends, and closes it, unless a
// tunnel has taken it. If it rests (see Rest) it is to be served again, on a
// new goroutine.
func (c *Conn) Serve() (rests bool) {
	defer func() {
		if !rests {
			c.end()
		}
	}()
	if c.number > 0 { // it has rested
		c.in.Wait()
	}
	// What is called while it waits for a request is kept small: its stack stays.
	c.mu.Lock()
	over := c.expect()
	c.mu.Unlock()
	if over {
		return false
	}
	for {
		head, err := c.head()
		if err != nil && errors.Is(err, errRests) {
			return true
		}
		if !c.one(head, err) {
			return false
		}
	}
}

// expect begins the wait for a request, and reports whether none is wanted. mu is
// held.
func (c *Conn) expect() (over bool) {
	c.busy = len(c.in.Bytes()) > 0
	c.number++
	return c.leaving.Load() || c.closed
}

func (c *Conn) end() {
	c.mu.Lock()
	taken := c.taken
	c.gone = true
	if c.alarm != nil {
		c.alarm.Stop()
	}
	life := c.life.Load()
	c.mu.Unlock()
	c.in.Discard()
	life.end()
	c.in.Release()
	if !taken {
		_ = c.nc.Close()
	}
}

// Shutdown ends the connection: at once if it is idle, else with the answer to
// the request that it is busy with. One that is not there yet must come soon.
func (c *Conn) Shutdown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving.Store(true)
	switch {
	case !c.busy && c.in.Pending(): // the last answer is not out yet
		c.last = true
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	case !c.busy:
		c.closed = true
		_ = c.nc.Close()
	case c.half:
		c.hurry()
	}
}

// Close ends the connection at once.
func (c *Conn) Close() {
	c.mu.Lock()
	taken := c.taken
	if !taken {
		c.closed = true
	}
	c.mu.Unlock()
	if !taken {
		_ = c.nc.Close()
	}
}

// one serves the request of a head, and reports whether there may be another.
func (c *Conn) one(head []byte, err error) bool {
	if err != nil {
		c.mu.Lock()
		last := c.last
		c.mu.Unlock()
		switch {
		case last:
			c.part()
		case errors.Is(err, errTooLarge):
			c.refuse(431)
		case errors.Is(err, errLine):
			c.refuse(400)
		}
		return false
	}
	x := &c.x
	*x = Exchange{c: c, store: message.NewStore()}
	r := &x.req
	f, err := parseRequest(r, x.store.Fields(), x.store.String(head))
	c.in.Take(len(head))
	if err != nil {
		x.store.Release()
		c.refuse(refusal(err))
		return false
	}
	if f == none && len(c.in.Bytes()) == 0 {
		c.in.Release() // for whoever reads next: this request may wait long for its answer
	}
	x.store.Reuse(r.Fields)
	x.keep = keepAlive(r)
	x.body.reset(&c.in, f, r.Length, c.cfg.MaxHead)
	x.expects = f != none && r.Version == message.HTTP11 && r.Fields.HasToken("expect", "100-continue")
	c.cfg.Handle(x)
	again := c.after(x)
	x.store.Release()
	x.store, x.req = nil, message.Request{}
	return again
}

func refusal(err error) int {
	switch {
	case errors.Is(err, errCoding):
		return 501
	case errors.Is(err, errVersion):
		return 505
	case errors.Is(err, errTooMany):
		return 431
	}
	return 400
}

// head waits for the head of a request, and returns it before it is taken.
func (c *Conn) head() ([]byte, error) {
	looked := 0
	for empty := 0; ; {
		b := c.in.Bytes()
		// Empty lines before a request are skipped (RFC 9112 §2.2).
		for looked == 0 && len(b) >= 2 && b[0] == '\r' && b[1] == '\n' {
			if empty++; empty > 8 {
				return nil, errLine
			}
			c.in.Take(2)
			b = b[2:]
		}
		if n := headEnd(b, looked); n > 0 {
			if n > c.cfg.MaxHead {
				return nil, errTooLarge
			}
			return b[:n], nil
		}
		if len(b) > 0 && !begins(b) {
			return nil, errLine // no need to wait for an end that may not come
		}
		if looked = len(b); looked+empty > 0 {
			c.halved()
		}
		err := c.woken(c.in.Fill(c.cfg.MaxHead), looked+empty > 0)
		if errors.Is(err, io.ErrShortBuffer) {
			return nil, errTooLarge
		}
		if err != nil {
			return nil, err
		}
	}
}

// begins reports whether b may be the beginning of a request.
func begins(b []byte) bool {
	for i, c := range b {
		if c == ' ' && i > 0 {
			return true
		}
		if !message.TokenByte(c) {
			return i == 0 && c == '\r' && len(b) < 2
		}
	}
	return true
}

// keepAlive reports whether the client means to send more requests.
func keepAlive(r *message.Request) bool {
	if r.Version == message.HTTP10 {
		return r.Fields.HasToken("connection", "keep-alive")
	}
	return !r.Fields.HasToken("connection", "close")
}
