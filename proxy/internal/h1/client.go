package h1

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/weftmesh/weft/proxy/internal/detect"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

// A Call is a connection to a server, with one request at a time on it. The
// question may be sent by one goroutine while another reads the answer.
type Call struct {
	nc   net.Conn
	in   wire.Reader
	most int    // of a head, in bytes
	on   *shelf // of its pool; nil if it never had one

	req      *message.Request
	used     bool          // a request has been answered on it before
	idle     time.Duration // since when, by clock
	sent     atomic.Bool   // bytes of this request have gone out
	heard    bool          // a byte of the answer has come
	framing  framing       // of the request's body
	left     int64
	out      []byte
	finished atomic.Bool // the question is whole

	body    body
	res     message.Response
	store   *message.Store // of the answer's head
	final   bool           // the answer's head has come
	keep    bool
	aborted atomic.Pointer[error]
}

var (
	_ message.Body    = (*Call)(nil)
	_ message.Aborter = (*Call)(nil)
)

// ErrStale means that a connection that had been used before was closed by the
// server, and no byte of an answer had come.
var ErrStale = errors.New("the server has closed the connection meanwhile")

// NewCall returns the client's side of a connection. Heads of more than most bytes
// are refused.
func NewCall(nc net.Conn, most int) *Call {
	c := &Call{nc: nc, most: most}
	c.in.Reset(nc)
	return c
}

// Used reports whether another request was sent on the connection before.
func (c *Call) Used() bool { return c.used }

// Sent reports whether any byte of the request may have gone out.
func (c *Call) Sent() bool { return c.sent.Load() }

// Begin keeps the head of a request, to be sent with what follows: a piece of the
// body, Flush or Finish.
func (c *Call) Begin(r *message.Request) {
	c.req, c.heard, c.final, c.keep = r, false, false, true
	c.sent.Store(false)
	c.finished.Store(false)
	c.out = appendRequest(wire.Get(1024), r)
	c.left = r.Length
	switch {
	case r.Length == message.Unknown:
		c.framing = chunked
	case r.Length > 0:
		c.framing = sized
	default:
		c.framing = none
	}
}

// Write sends a piece of the request's body.
func (c *Call) Write(p []byte) error {
	switch c.framing {
	case sized:
		if c.left -= int64(len(p)); c.left < 0 {
			return errors.New("the request is longer than its head says")
		}
	case chunked:
		if len(p) == 0 {
			return nil
		}
		c.room(len(p) + 32)
		c.out = appendChunk(c.out, len(p))
	case none, toEnd:
		return nil
	}
	if len(c.out)+len(p) > together {
		if err := c.Flush(); err != nil {
			return err
		}
		if err := c.write(p); err != nil {
			return err
		}
	} else {
		c.room(len(p) + 32)
		c.out = wire.Append(c.out, p)
	}
	if c.framing == chunked {
		c.room(32)
		c.out = append(c.out, "\r\n"...)
	}
	return nil
}

func (c *Call) room(n int) {
	if c.out == nil {
		c.out = wire.Get(n)
	}
}

func (c *Call) write(p []byte) error {
	n, err := c.nc.Write(p)
	if n > 0 {
		c.sent.Store(true)
	}
	return err
}

// Flush sends what has been kept back.
func (c *Call) Flush() error {
	if c.out == nil {
		return nil
	}
	b := c.out
	c.out = nil
	// What has been given up is not begun, and what cannot be sent twice goes while the
	// server is still as it was when somebody looked (see Want.Sure).
	if c.framing == none && c.aborted.Load() == nil && c.req.Safe() && c.in.Post(b) {
		c.sent.Store(true) // or may be so by now
		return nil
	}
	err := c.write(b)
	wire.Put(b)
	return err
}

// Finish ends the question.
func (c *Call) Finish(trailer message.Fields) error {
	if c.framing == chunked {
		c.room(64)
		c.out = appendLast(c.out, trailer)
	}
	if c.framing == sized && c.left > 0 {
		return errors.New("the request is shorter than its head says")
	}
	err := c.Flush()
	if err == nil {
		c.finished.Store(true)
	}
	return err
}

// Response waits for the next head of the answer: interim ones (1xx), then the
// one that counts.
func (c *Call) Response() (*message.Response, error) {
	looked := 0
	for {
		b := c.in.Bytes()
		if n := headEnd(b, looked); n > 0 {
			if n > c.most {
				return nil, errTooLarge
			}
			if c.store == nil {
				c.store = message.NewStore()
			}
			s := c.store.String(b[:n])
			c.in.Take(n)
			return c.answer(s)
		}
		if len(b) > 4 && string(b[:5]) != "HTTP/" {
			return nil, errLine
		}
		looked = len(b)
		if err := c.in.Fill(c.most); err != nil {
			if c.in.Unsent() {
				c.sent.Store(false)
			}
			return nil, c.why(err, len(b) > 0)
		}
		c.heard = true
	}
}

// why is the error of a connection that broke before there was a head.
func (c *Call) why(err error, some bool) error {
	switch p := c.aborted.Load(); {
	case p != nil:
		return *p
	case errors.Is(err, io.ErrShortBuffer):
		return errTooLarge
	case c.used && !c.heard:
		return ErrStale
	case errors.Is(err, io.EOF) && (some || !c.heard):
		return io.ErrUnexpectedEOF
	}
	return err
}

func (c *Call) answer(head string) (*message.Response, error) {
	r := &c.res
	f, err := parseResponse(r, c.store.Fields(), head, c.req.Method)
	if err != nil {
		return nil, err
	}
	c.store.Reuse(r.Fields)
	if r.Status/100 == 1 && r.Status != 101 {
		return r, nil
	}
	c.final = true
	c.keep = f != toEnd && r.Status != 101 && (c.req.Method != "CONNECT" || r.Status/100 != 2) && !r.Fields.HasToken("connection", "close") &&
		(r.Version == message.HTTP11 || r.Fields.HasToken("connection", "keep-alive"))
	c.body.reset(&c.in, f, r.Length, c.most)
	return r, nil
}

// Next is message.Body's.
func (c *Call) Next() ([]byte, error) {
	p, err := c.body.next()
	if err != nil {
		if cause := c.aborted.Load(); cause != nil && !errors.Is(err, io.EOF) {
			return nil, *cause
		}
	}
	return p, err
}

// Ready is message.Body's.
func (c *Call) Ready() bool { return c.body.ready() }

// Trailer is message.Body's.
func (c *Call) Trailer() message.Fields { return c.body.trailer }

// Abort ends the call: whoever waits for it gets the error. Any goroutine may call
// it.
func (c *Call) Abort(err error) {
	if c.aborted.CompareAndSwap(nil, &err) {
		_ = c.nc.SetDeadline(time.Unix(1, 0))
	}
}

// Done ends the call, and reports whether the connection may be used for another.
// If not, it has been closed.
func (c *Call) Done() bool {
	if c.out != nil {
		wire.Put(c.out)
		c.out = nil
	}
	if c.final && c.keep && c.body.over() && c.finished.Load() && c.aborted.Load() == nil {
		c.in.Take(c.body.taken)
		c.body.taken = 0
		if len(c.in.Bytes()) == 0 { // bytes that nobody asked for are of no good
			c.in.Release()
			c.used, c.req = true, nil
			c.forget()
			return true
		}
	}
	c.Close()
	return false
}

// forget gives the memory of the answer's head back.
func (c *Call) forget() {
	if c.store != nil {
		c.store.Release()
		c.store = nil
	}
	c.res = message.Response{}
	c.body.trailer = nil
}

// Close closes the connection.
func (c *Call) Close() {
	c.in.Discard()
	c.in.Release()
	_ = c.nc.Close()
}

// Tunnel takes the connection over: what was read ahead comes first.
func (c *Call) Tunnel() net.Conn {
	c.in.Take(c.body.taken)
	c.body.taken = 0
	head := append([]byte(nil), c.in.Bytes()...)
	c.in.Release()
	return detect.Replay(c.nc, head)
}
