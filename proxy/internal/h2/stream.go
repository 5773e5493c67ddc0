package h2

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/spare"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

// A Stream is one exchange. On a server it is a message.Client, on a client the
// way to the answer. Its body is read by one goroutine and written by one, which
// need not be the same; Abort and Break are for anybody.
type Stream struct {
	listed bool // is one of the connection's streams
	c      *Conn
	id     uint32
	born   int64     // when it was read of, as Conn.heard
	cond   sync.Cond // of the connection's lock

	req     message.Request     // of a server
	method  string              // of a client's request
	interim []*message.Response // of a client: come and not fetched
	final   message.Response    // the head that counts, once begun
	fetched bool
	stores  [2]*message.Store // of what has come

	in         []byte // come and not fetched
	held       []byte // fetched, and borrowed by the reader
	trailer    message.Fields
	recvWindow int64
	owed       int64
	expect     int64 // of content, message.Unknown if not said
	got        int64
	empty      int
	measured   bool
	begun      bool // the head has come
	recvEnd    bool
	quit       error // nobody reads: what comes is thrown away

	pending    *message.Response // of a server: to go out with what follows
	sendWindow int64
	first      uint64 // where its head is among all bytes of the connection
	lastData   uint64 // where its last DATA frame is
	hasData    bool
	headSent   bool
	sendEnd    bool
	waiting    bool // is in blocked

	err     error
	guard   message.Aborter
	telling bool          // the guard is being told
	done    chan struct{} // made when somebody asks
	ended   bool
}

var (
	_ message.Client  = (*Stream)(nil)
	_ message.Body    = (*Stream)(nil)
	_ message.Aborter = (*Stream)(nil)
)

// open makes a stream. It is called with the lock held.
func (c *Conn) open(id uint32) *Stream {
	s := streams.Get()
	s.c, s.id, s.sendWindow, s.recvWindow = c, id, c.peer.window, int64(c.cfg.StreamWindow)
	s.born = c.heard.Load()
	s.cond.L = &c.mu
	c.streams[id], s.listed, c.latest = s, true, s
	c.most = max(c.most, len(c.streams))
	return s
}

// stream is the open one of that number; nil if there is none. It is called with
// the lock held.
func (c *Conn) stream(id uint32) *Stream {
	if c.latest != nil && c.latest.id == id {
		return c.latest
	}
	s := c.streams[id]
	if s != nil {
		c.latest = s
	}
	return s
}

// end breaks a stream off. It is called with the lock held.
func (s *Stream) end(err error) {
	if s.err == nil {
		s.err = err
	}
	s.c.drop(s)
	s.over()
	s.cond.Broadcast()
	if g := s.guard; g != nil {
		s.guard, s.telling = nil, true
		go func() {
			g.Abort(message.ErrGone)
			s.c.mu.Lock()
			s.telling = false
			s.cond.Broadcast()
			s.c.mu.Unlock()
		}()
	}
}

// streams are used again.
var streams spare.Pool[Stream]

// keep has the stream own a store of what came on it.
func (s *Stream) keep(store *message.Store) {
	if s.stores[0] == nil {
		s.stores[0] = store
		return
	}
	s.stores[1] = store
}

// whole reports whether both sides have ended as they should, and nobody else
// knows the stream. It is called with the lock held.
func (s *Stream) whole() bool {
	return s.err == nil && s.recvEnd && s.sendEnd && !s.waiting && !s.telling && s.done == nil && !s.listed
}

// free gives a whole stream's memory back when its owner has let go of it. One
// that was broken off is left to the collector: somebody may still be told of it.
func (s *Stream) free() {
	for _, store := range s.stores {
		if store != nil {
			store.Release()
		}
	}
	*s = Stream{}
	streams.Put(s)
}

// recycle gives back what has come and nobody will fetch.
func (s *Stream) recycle() {
	if s.in != nil {
		s.c.pay(nil, len(s.in))
		wire.Put(s.in)
		s.in = nil
	}
}

func (s *Stream) over() {
	if !s.ended {
		s.ended = true
		if s.done != nil {
			close(s.done)
		}
	}
}

// drop takes a stream off the connection. It is called with the lock held.
func (c *Conn) drop(s *Stream) {
	if !s.listed {
		return
	}
	delete(c.streams, s.id)
	s.listed = false
	if c.latest == s {
		c.latest = nil
	}
	c.wakeQueue()
	if len(c.streams) == 0 {
		c.rest()
		c.settle()
	}
}

// receivedAll notes the end of what the peer sends.
func (s *Stream) receivedAll() {
	s.recvEnd = true
	s.closeIfDone()
}

func (s *Stream) closeIfDone() {
	if s.recvEnd && s.sendEnd {
		s.c.drop(s)
	}
}

// Request is the head of the request.
func (s *Stream) Request() *message.Request { return &s.req }

// Body is the request's, nil if it has none.
func (s *Stream) Body() message.Body {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.recvEnd && len(s.in) == 0 && s.trailer == nil {
		return nil
	}
	return s
}

// Next is message.Body's.
func (s *Stream) Next() ([]byte, error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.settleHeld()
	for {
		switch {
		case s.quit != nil:
			return nil, s.quit
		case len(s.in) > 0:
			s.held, s.in = s.in, nil
			return s.held, nil
		case s.err != nil:
			return nil, s.err
		case s.recvEnd:
			return nil, io.EOF
		}
		s.cond.Wait()
	}
}

// settleHeld gives the piece back that the reader had.
func (s *Stream) settleHeld() {
	if s.held != nil {
		s.c.pay(s, len(s.held))
		wire.Put(s.held)
		s.held = nil
	}
}

// Ready is message.Body's.
func (s *Stream) Ready() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return len(s.in) > 0 || s.recvEnd || s.err != nil || s.quit != nil
}

// Trailer is message.Body's.
func (s *Stream) Trailer() message.Fields {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.trailer
}

// Break is message.Client's: the stream is reset, with the code that another was
// if that is why.
func (s *Stream) Break(err error) {
	code := frame.InternalError
	if reset, ok := errors.AsType[*ResetError](err); ok {
		code = reset.Code
	}
	s.abort(err, code)
}

// Abort ends the reading of a server's stream: what still comes is thrown away. A
// client's stream is reset.
func (s *Stream) Abort(err error) {
	if !s.c.server {
		s.abort(err, frame.Cancel)
		return
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.quit == nil {
		s.quit = err
		s.recycle()
		s.cond.Broadcast()
	}
}

func (s *Stream) abort(err error, code frame.Code) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.err != nil {
		return
	}
	if s.listed && c.err == nil {
		c.put(frame.AppendReset(c.begin(16), s.id, code))
		c.forgotten(s.id)
	}
	s.end(err)
}

// Context ends with the stream.
func (s *Stream) Context() context.Context { return (*streamContext)(s) }

type streamContext Stream

func (*streamContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*streamContext) Value(any) any               { return nil }

func (x *streamContext) Done() <-chan struct{} {
	s := (*Stream)(x)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.done == nil {
		s.done = make(chan struct{})
		if s.ended {
			close(s.done)
		}
	}
	return s.done
}

func (x *streamContext) Err() error {
	s := (*Stream)(x)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.ended {
		return context.Canceled
	}
	return nil
}

// Guard is message.Client's.
func (s *Stream) Guard(a message.Aborter) {
	s.c.mu.Lock()
	if a == nil {
		s.unguard()
		s.c.mu.Unlock()
		return
	}
	gone := s.err != nil
	if !gone {
		s.guard = a
	}
	s.c.mu.Unlock()
	if gone {
		a.Abort(message.ErrGone)
	}
}

// unguard returns when nobody is being told any more.
func (s *Stream) unguard() {
	s.guard = nil
	for s.telling {
		s.cond.Wait()
	}
}

// Done tells that the handler of a request has returned. A stream that has not
// ended by then is reset.
func (s *Stream) Done() {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handled--
	s.unguard()
	s.settleHeld()
	s.recycle()
	if s.err == nil && !s.sendEnd {
		c.put(frame.AppendReset(c.begin(16), s.id, frame.InternalError))
		c.forgotten(s.id)
		s.end(message.ErrAborted)
		return
	}
	if s.err == nil && !s.recvEnd {
		// The answer is whole, the question is not: the rest is not wanted (§8.1).
		c.put(frame.AppendReset(c.begin(16), s.id, frame.NoError))
		c.forgotten(s.id)
		s.end(message.ErrAborted)
		return
	}
	whole := s.whole()
	s.over()
	if whole {
		s.free()
	}
}
