package h2

import (
	"context"
	"strconv"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// Open sends the head of a request; end says that nothing follows it. While the
// peer takes no more streams it waits for one to end, or for ctx.
func (c *Conn) Open(ctx context.Context, r *message.Request, end bool) (*Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.err != nil:
			return nil, &UnsentError{Err: c.err}
		case !c.usable():
			return nil, &UnsentError{Err: ErrSpent}
		}
		if uint32(len(c.streams)) < c.peer.maxStreams && len(c.out) < highWater {
			break
		}
		turn := make(chan struct{})
		c.queue = append(c.queue, turn)
		c.mu.Unlock()
		select {
		case <-turn:
			c.mu.Lock()
		case <-ctx.Done():
			c.mu.Lock()
			c.leaveQueue(turn)
			return nil, context.Cause(ctx)
		}
	}
	s := c.open(c.next)
	c.next += 2
	s.method = r.Method
	s.first = c.queued
	s.sendEnd, s.headSent = end, true
	c.block = c.request0(c.enc.Begin(c.block[:0]), r)
	c.put(frame.AppendBlock(c.begin(len(c.block)+64), s.id, c.block, end, c.peer.maxFrame))
	return s, nil
}

// request0 appends the fields of a request. Host stays beside :authority:
// linkerd2-proxy gives the application of an HTTP/1 request no other.
func (c *Conn) request0(b []byte, r *message.Request) []byte {
	b = c.enc.Append(b, ":method", r.Method, false)
	if r.Method != "CONNECT" {
		scheme := r.Scheme
		if scheme == "" {
			scheme = "http"
		}
		b = c.enc.Append(b, ":scheme", scheme, false)
	}
	if r.Authority != "" {
		b = c.enc.Append(b, ":authority", r.Authority, false)
	}
	if r.Method != "CONNECT" {
		target := r.Target
		if target == "" || target[0] == '?' {
			target = "/" + target
		}
		b = c.enc.Append(b, ":path", target, false)
	}
	for i := range r.Fields {
		b = c.field(b, &r.Fields[i])
	}
	return b
}

func (c *Conn) field(b []byte, f *message.Field) []byte {
	if f.Name == "" || f.Name[0] == ':' {
		return b
	}
	if !f.Sensitive {
		if known, ok := c.enc.Again(b, f.Name, f.Value); ok { // what follows was looked at then
			return known
		}
	}
	if hop(f.Name) {
		return b
	}
	if len(f.Name) == 2 && message.Is(f.Name, "te") && f.Value != "trailers" {
		return b
	}
	value := f.Value
	if !ValidValue(value) {
		value = strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return ' '
			}
			return r
		}, strings.Trim(value, " \t\r\n\x00"))
		value = strings.Trim(value, " ")
	}
	return c.enc.Append(b, f.Name, value, f.Sensitive)
}

// leaveQueue gives a place in the queue up, and the turn to the next if it had
// come meanwhile.
func (c *Conn) leaveQueue(turn chan struct{}) {
	for i, t := range c.queue {
		if t == turn {
			c.queue = append(c.queue[:i], c.queue[i+1:]...)
			return
		}
	}
	c.wakeQueue()
}

// wakeQueue lets as many requests go on as there is room for; all, if there is
// nothing to wait for any more. It is called with the lock held.
func (c *Conn) wakeQueue() {
	n := len(c.queue)
	if n == 0 {
		return
	}
	switch {
	case c.usable() && len(c.out) >= highWater:
		n = 0 // the flusher comes back
	case c.usable():
		n = min(n, max(0, int(c.peer.maxStreams)-len(c.streams)))
	}
	for _, turn := range c.queue[:n] {
		close(turn)
	}
	c.queue = append(c.queue[:0], c.queue[n:]...)
}

// Response waits for the next head of the answer: interim ones (1xx), then the
// one that counts.
func (s *Stream) Response() (*message.Response, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for {
		switch {
		case len(s.interim) > 0:
			res := s.interim[0]
			s.interim = s.interim[1:]
			return res, nil
		case s.begun && !s.fetched:
			s.fetched = true
			return &s.final, nil
		case s.err != nil:
			return nil, s.refused()
		}
		s.cond.Wait()
	}
}

// refused is the stream's error, marked if the request has not been looked at.
func (s *Stream) refused() error {
	if reset, ok := s.err.(*ResetError); ok && reset.Code == frame.RefusedStream { //nolint:errorlint // as stored
		return &UnsentError{Err: reset}
	}
	return s.err
}

// Head reports whether a head of the answer has come, or none will.
func (s *Stream) Head() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return len(s.interim) > 0 || s.begun && !s.fetched || s.err != nil
}

// Close ends a client's interest in its stream: what has not ended is reset.
func (s *Stream) Close() {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.settleHeld()
	whole := s.whole()
	if s.err == nil && s.listed && c.err == nil {
		c.put(frame.AppendReset(c.begin(16), s.id, frame.Cancel))
		c.forgotten(s.id)
	}
	s.end(message.ErrAborted)
	s.recycle()
	if whole {
		s.free()
	}
}

// Interim is message.Client's.
func (s *Stream) Interim(r *message.Response) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.wait()
	if s.err != nil {
		return s.err
	}
	s.sendHead(r, false)
	return nil
}

// Respond is message.Client's.
func (s *Stream) Respond(r *message.Response) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.pending = r
	if r.Fields.HasToken("connection", "close") { // which HTTP/2 says in another way
		s.c.shutdown()
	}
	return s.err
}

// sendHead appends a head of an answer.
func (s *Stream) sendHead(r *message.Response, end bool) {
	c := s.c
	b := c.enc.Append(c.enc.Begin(c.block[:0]), ":status", status(r.Status), false)
	for i := range r.Fields {
		b = c.field(b, &r.Fields[i])
	}
	c.block = b
	c.put(frame.AppendBlock(c.begin(len(b)+64), s.id, b, end, c.peer.maxFrame))
}

func status(n int) string {
	if n == 200 {
		return "200"
	}
	return strconv.Itoa(n)
}

// flushHead sends the head that is waiting.
func (s *Stream) flushHead(end bool) {
	if r := s.pending; r != nil {
		s.pending, s.headSent = nil, true
		s.sendHead(r, end)
	}
}

// Flush is message.Client's. The connection's writer flushes by itself.
func (s *Stream) Flush() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.pending != nil {
		s.wait()
	}
	if s.err != nil {
		return s.err
	}
	s.flushHead(false)
	return nil
}

// wait lets a head wait while too much waits to be written: no window bounds
// heads, and a client that never reads could ask for them without end.
func (s *Stream) wait() {
	for s.err == nil && len(s.c.out) >= highWater {
		s.block()
	}
}

// block waits for a window, or for room to write.
func (s *Stream) block() {
	if !s.waiting {
		s.waiting = true
		s.c.blocked = append(s.c.blocked, s)
	}
	s.cond.Wait()
}

// Write sends a piece of a body. It waits for the peer's windows, and while too
// much waits to be written.
func (s *Stream) Write(p []byte) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.pending != nil {
		s.wait()
	}
	if s.err == nil {
		s.flushHead(false)
	}
	for len(p) > 0 {
		switch {
		case s.err != nil:
			return s.err
		case s.sendEnd:
			return message.ErrAborted // the peer wants no more
		}
		n := min(len(p), c.room(s))
		if n == 0 {
			s.block()
			continue
		}
		c.data(s, p[:n])
		p = p[n:]
	}
	return s.err
}

// Finish ends what we send, with a trailer if there is one.
func (s *Stream) Finish(trailer message.Fields) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.pending != nil || len(trailer) > 0 {
		s.wait()
	}
	switch {
	case s.err != nil:
		return s.err
	case s.sendEnd:
		return nil
	case len(trailer) > 0:
		s.flushHead(false)
		b := c.enc.Begin(c.block[:0])
		for i := range trailer {
			b = c.field(b, &trailer[i])
		}
		c.block = b
		c.put(frame.AppendBlock(c.begin(len(b)+64), s.id, b, true, c.peer.maxFrame))
	case s.pending != nil:
		s.flushHead(true)
	default:
		c.endStream(s)
	}
	s.sendEnd = true
	s.closeIfDone()
	return nil
}
