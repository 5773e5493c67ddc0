package h1

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftmesh/weft/proxy/internal/detect"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

// An Exchange is a request on a client's connection, and the way back. It is a
// message.Client until Handle returns.
type Exchange struct {
	c     *Conn
	req   message.Request
	store *message.Store // of the request's head
	body  body
	read  atomic.Bool // the body has been read to its end

	keep      bool // the connection may be used again
	spoiled   atomic.Bool
	expects   bool        // the client waits for a word before it sends its body
	continued atomic.Bool // it has been told to, or has sent some
	word      sync.Mutex  // is held while it is told
	answered  bool        // the answer has begun: no word may come in the middle of it
	closing   bool        // the answer says that the connection ends with it
	finished  bool
	broken    bool
	framing   framing
	left      int64 // of a sized answer
	wrote     bool  // a piece of the answer's body
	out       []byte
}

var (
	_ message.Client = (*Exchange)(nil)
	_ message.Body   = (*Exchange)(nil)
)

// Request is message.Client's.
func (x *Exchange) Request() *message.Request { return &x.req }

// Body is message.Client's.
func (x *Exchange) Body() message.Body {
	if x.body.framing == none {
		x.read.Store(true)
		return nil
	}
	return x
}

// Next is message.Body's. The first call tells a client that waits for it to go
// on.
func (x *Exchange) Next() ([]byte, error) {
	if x.expects && !x.continued.Load() {
		if err := x.tell(); err != nil {
			return nil, err
		}
	}
	p, err := x.body.next()
	if x.body.over() && x.body.taken == 0 {
		x.read.Store(true)
	}
	return p, err
}

// tell says 100, unless the answer has begun meanwhile.
func (x *Exchange) tell() error {
	x.word.Lock()
	defer x.word.Unlock()
	if x.answered || x.continued.Swap(true) || len(x.c.in.Bytes()) > 0 {
		return nil
	}
	_, err := x.c.nc.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n"))
	return err
}

// Ready is message.Body's.
func (x *Exchange) Ready() bool { return x.body.ready() }

// Trailer is message.Body's.
func (x *Exchange) Trailer() message.Fields { return x.body.trailer }

// Context is message.Client's. It is the connection's.
func (x *Exchange) Context() context.Context {
	if l := x.c.life.Load(); l != nil {
		return l.ctx
	}
	return x.c.live()
}

// Guard is message.Client's.
func (x *Exchange) Guard(a message.Aborter) { x.c.Guard(a) }

// Interim is message.Client's.
func (x *Exchange) Interim(r *message.Response) error {
	if x.req.Version == message.HTTP10 {
		return nil
	}
	if r.Status == 100 {
		if !x.expects || x.continued.Swap(true) {
			return nil
		}
	}
	x.room(512)
	x.out, _ = appendResponse(x.out, r, message.HTTP11, x.req.Method, false)
	return x.flush()
}

// Respond is message.Client's.
func (x *Exchange) Respond(r *message.Response) error {
	if x.expects {
		x.word.Lock()
		x.answered = true
		x.word.Unlock()
	}
	toClose := r.Length == message.Unknown && x.req.Version == message.HTTP10 && !message.Bodyless(x.req.Method, r.Status)
	// A client of CONNECT may have sent what was meant for the tunnel.
	refused := x.req.Method == "CONNECT" && r.Status/100 != 2
	if x.c.leaving.Load() || toClose || refused || r.Fields.HasToken("connection", "close") || x.unread() {
		x.keep = false
	}
	x.closing = !x.keep
	room := int64(1 << 10) // a small body goes out with the head
	if 0 < r.Length && r.Length < together-room {
		room += r.Length
	}
	x.room(int(room))
	x.out, x.framing = appendResponse(x.out, r, x.req.Version, x.req.Method, x.closing)
	x.left = r.Length
	return nil
}

// unread reports that the client waits for a word to send its body, and will not
// get it.
func (x *Exchange) unread() bool { return x.expects && !x.continued.Load() }

func (x *Exchange) room(n int) {
	if x.out == nil {
		x.out = wire.Get(n)
	}
}

// together is how much is kept back to be written at once, in bytes.
const together = 16 << 10

// Write is message.Client's.
func (x *Exchange) Write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	x.wrote = true
	switch x.framing {
	case none:
		return nil // HEAD and its like: whatever came has no place
	case sized:
		if x.left -= int64(len(p)); x.left < 0 {
			x.broken = true
			return errors.New("the answer is longer than its head says")
		}
	case chunked:
		x.room(len(p) + 32)
		x.out = appendChunk(x.out, len(p))
	case toEnd:
	}
	if len(x.out)+len(p) > together {
		if err := x.flush(); err != nil {
			return err
		}
		if err := x.write(p); err != nil {
			return err
		}
	} else {
		x.room(len(p) + 32)
		x.out = wire.Append(x.out, p)
	}
	if x.framing == chunked {
		x.room(32)
		x.out = append(x.out, "\r\n"...)
	}
	return nil
}

func (x *Exchange) write(p []byte) error {
	_, err := x.c.to.Write(p)
	if err != nil {
		x.broken = true
	}
	return err
}

func (x *Exchange) flush() error {
	if x.out == nil {
		return nil
	}
	b := x.out
	x.out = nil
	err := x.write(b)
	wire.Put(b)
	return err
}

// Flush is message.Client's.
func (x *Exchange) Flush() error { return x.flush() }

// Finish is message.Client's.
func (x *Exchange) Finish(trailer message.Fields) error {
	if x.framing == chunked {
		x.room(64)
		x.out = appendLast(x.out, trailer)
	}
	if x.framing == sized && x.left > 0 {
		x.broken = true
		return errors.New("the answer is shorter than its head says")
	}
	x.finished = true
	if x.keep && x.body.framing == none && x.c.in.Posts() && !x.c.leaving.Load() {
		return nil // after sends it, with what others have to send
	}
	return x.flush()
}

// Abort is message.Body's: reading ends, and after the answer so does the
// connection.
func (x *Exchange) Abort(error) {
	x.spoiled.Store(true)
	_ = x.c.nc.SetReadDeadline(time.Unix(1, 0))
}

// Break is message.Client's.
func (x *Exchange) Break(error) {
	x.broken = true
	if x.framing == toEnd { // only a reset is no end
		if tcp, ok := under(x.c.nc); ok {
			_ = tcp.SetLinger(0)
		}
	}
}

func under(c net.Conn) (*net.TCPConn, bool) {
	for {
		switch below := c.(type) {
		case *net.TCPConn:
			return below, true
		case interface{ Under() net.Conn }:
			c = below.Under()
		case interface{ NetConn() net.Conn }:
			c = below.NetConn()
		default:
			return nil, false
		}
	}
}

// Tunnel takes the connection over: what was read ahead comes first. The caller
// closes it. Nothing of the exchange may be used any more.
func (x *Exchange) Tunnel() (net.Conn, error) {
	c := x.c
	c.unwatch()
	if err := x.flush(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.gone {
		c.mu.Unlock()
		return nil, message.ErrGone
	}
	c.taken = true
	c.mu.Unlock()
	c.in.Take(x.body.taken)
	x.body.taken = 0
	head := append([]byte(nil), c.in.Bytes()...)
	c.in.Release()
	x.finished = true
	return detect.Replay(c.nc, head), nil
}
