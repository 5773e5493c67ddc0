package h2

import (
	"runtime"
	"time"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

// begin returns the buffer to append frames of n bytes to; put takes it back. Both
// are called with the lock held.
func (c *Conn) begin(n int) []byte {
	if cap(c.out)-len(c.out) < n {
		c.grow(n)
	}
	return c.out
}

// grow makes room in the buffer: at once as much as was written the last time.
func (c *Conn) grow(n int) {
	const borrowed = 64 << 10 // more is not
	size := max(len(c.out)+n, min(c.wrote, borrowed), 4<<10)
	if size > borrowed {
		size = max(size, 2*len(c.out))
	}
	more := append(wire.Get(size), c.out...)
	if c.out != nil {
		wire.Put(c.out)
	}
	c.out = more
}

func (c *Conn) put(b []byte) {
	c.queued += uint64(len(b) - len(c.out))
	c.out = b
	if !c.flushing {
		c.flushing = true
		go c.flusher()
	}
}

// reply counts a frame that the peer has made us write. One that asks without
// ever reading the answers is cut off.
func (c *Conn) reply() error {
	if c.control++; c.control > maxControl {
		return &frame.ConnError{Code: frame.EnhanceYourCalm, Why: "too many frames that want an answer"}
	}
	return nil
}

const maxControl = 2000

// lastWords is how long a peer is read from that takes nothing any more.
const lastWords = time.Second

// flush writes what there is until there is nothing.
func (c *Conn) flush() {
	defer c.survive()
	// Whoever is ready to run appends first: one write for all of them.
	runtime.Gosched()
	for {
		c.mu.Lock()
		b := c.out
		c.out, c.control = nil, 0
		began := c.queued - uint64(len(b))
		c.started = c.queued
		c.wakeBlocked()
		c.wakeQueue()
		if len(b) == 0 {
			c.flushing = false
			c.settle()
			over := c.err != nil
			c.mu.Unlock()
			if over {
				c.hangUp()
			}
			return
		}
		c.wrote = len(b)
		c.mu.Unlock()
		n, err := c.nc.Write(b)
		wire.Put(b)
		if err != nil {
			c.mu.Lock()
			c.started = began + uint64(n) // what is behind that went nowhere
			c.out, c.flushing = nil, false
			over := c.err != nil
			c.mu.Unlock()
			// A peer that hangs up may have said before which requests it has not
			// looked at (GOAWAY): Run reads that first, and then fails.
			if over || c.nc.SetReadDeadline(time.Now().Add(lastWords)) != nil {
				c.fail(err)
				_ = c.nc.Close()
			}
			return
		}
	}
}

// wakeBlocked lets streams look again whether they can write.
func (c *Conn) wakeBlocked() {
	for i, s := range c.blocked {
		s.waiting = false
		s.cond.Broadcast()
		c.blocked[i] = nil
	}
	c.blocked = c.blocked[:0]
}

// room is how many bytes of DATA a stream may send now.
func (c *Conn) room(s *Stream) int {
	if len(c.out) >= highWater {
		return 0
	}
	return int(max(0, min(c.sendWindow, s.sendWindow, int64(c.peer.maxFrame), 16<<10)))
}

// data appends a DATA frame of at most room bytes.
func (c *Conn) data(s *Stream, p []byte) {
	b := c.begin(frame.HeaderLen + len(p))
	s.lastData = c.queued
	b = frame.AppendHead(b, frame.Head{Length: uint32(len(p)), Type: frame.Data, Stream: s.id})
	c.put(append(b, p...))
	c.sendWindow -= int64(len(p))
	s.sendWindow -= int64(len(p))
	s.hasData = true
}

// endStream marks the stream's last DATA frame if it has not gone out, else
// appends an empty one.
func (c *Conn) endStream(s *Stream) {
	if s.hasData && s.lastData >= c.started && len(c.out) > 0 {
		at := len(c.out) - int(c.queued-s.lastData)
		c.out[at+4] |= byte(frame.EndStream)
		return
	}
	c.put(frame.AppendHead(c.begin(frame.HeaderLen), frame.Head{Type: frame.Data, Flags: frame.EndStream, Stream: s.id}))
}

// pay tells the peer what it may send again once that is worth a frame. It is
// called with the lock held.
func (c *Conn) pay(s *Stream, n int) {
	if n == 0 || c.err != nil {
		return
	}
	c.owed += int64(n)
	if c.owed >= int64(c.cfg.ConnWindow)/2 {
		c.put(frame.AppendWindow(c.begin(16), 0, uint32(c.owed)))
		c.recvWindow += c.owed
		c.owed = 0
	}
	if s == nil || s.recvEnd || s.err != nil {
		return
	}
	s.owed += int64(n)
	if s.owed >= int64(c.cfg.StreamWindow)/2 {
		c.put(frame.AppendWindow(c.begin(16), s.id, uint32(s.owed)))
		s.recvWindow += s.owed
		s.owed = 0
	}
}
