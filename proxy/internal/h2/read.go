package h2

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

// read works frames off until the connection ends.
func (c *Conn) read() error {
	if c.server {
		if err := c.preface(); err != nil {
			return err
		}
	}
	first := true
	for {
		h, err := c.head()
		if err != nil {
			return err
		}
		if first && (h.Type != frame.Settings || h.Has(frame.Ack)) {
			return &frame.ConnError{Code: frame.ProtocolError, Why: "the first frame is not SETTINGS"}
		}
		first = false
		if h.Length > c.cfg.MaxFrame {
			return &frame.ConnError{Code: frame.SizeError, Why: "a frame that is too long"}
		}
		size := frame.HeaderLen + int(h.Length)
		for len(c.in.Bytes()) < size {
			if err := c.fill(size); err != nil {
				return err
			}
		}
		err = c.frame(h, c.in.Bytes()[frame.HeaderLen:size])
		c.in.Take(size)
		if err = c.forgive(err); err != nil {
			return err
		}
	}
}

// head waits for the head of the next frame.
func (c *Conn) head() (frame.Head, error) {
	for len(c.in.Bytes()) < frame.HeaderLen {
		if err := c.fill(wire.Size); err != nil {
			return frame.Head{}, err
		}
	}
	return frame.Parse(c.in.Bytes()), nil
}

func (c *Conn) fill(size int) error {
	err := c.in.Fill(max(size, wire.Size))
	c.heard.Store(time.Now().UnixNano())
	if errors.Is(err, io.EOF) && len(c.in.Bytes()) > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (c *Conn) preface() error {
	for len(c.in.Bytes()) < len(frame.Preface) {
		got := c.in.Bytes()
		if !bytes.HasPrefix([]byte(frame.Preface), got) {
			break
		}
		if err := c.fill(wire.Size); err != nil {
			return err
		}
	}
	if !bytes.HasPrefix(c.in.Bytes(), []byte(frame.Preface)) {
		return &frame.ConnError{Code: frame.ProtocolError, Why: "no HTTP/2 preface"}
	}
	c.in.Take(len(frame.Preface))
	return nil
}

// forgive ends the stream that an error is about, and passes any other on.
func (c *Conn) forgive(err error) error {
	if err == nil {
		return nil
	}
	bad, ok := errors.AsType[*frame.StreamError](err)
	if !ok {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.reply(); err != nil {
		return err
	}
	c.put(frame.AppendReset(c.begin(16), bad.Stream, bad.Code))
	c.forgotten(bad.Stream)
	if s := c.stream(bad.Stream); s != nil {
		s.end(bad)
	}
	return nil
}

// frame works one frame off.
func (c *Conn) frame(h frame.Head, p []byte) error {
	if c.heads.stream != 0 && (h.Type != frame.Continuation || h.Stream != c.heads.stream) {
		return &frame.ConnError{Code: frame.ProtocolError, Why: "a frame within a block of fields"}
	}
	switch h.Type {
	case frame.Data:
		return c.onData(h, p)
	case frame.Headers:
		return c.onHeaders(h, p)
	case frame.Continuation:
		return c.onContinuation(h, p)
	case frame.Priority:
		return frame.CheckPriority(h, p)
	case frame.Reset:
		return c.onReset(h, p)
	case frame.Settings:
		return c.onSettings(h, p)
	case frame.Push:
		return &frame.ConnError{Code: frame.ProtocolError, Why: "PUSH_PROMISE, which nobody allowed"}
	case frame.Ping:
		return c.onPing(h, p)
	case frame.GoAway:
		return c.onGoAway(h, p)
	case frame.Window:
		return c.onWindow(h, p)
	}
	return nil // unknown types are to be ignored (RFC 9113 §4.1)
}

// idleStream reports whether a stream has never been used.
func (c *Conn) idleStream(id uint32) bool {
	if c.server == (id%2 == 1) {
		if c.server {
			return id > c.highest
		}
		return true // a server that opens streams pushes, which is not allowed
	}
	if c.server {
		return true
	}
	return id >= c.next
}

func (c *Conn) onData(h frame.Head, p []byte) error {
	content, err := frame.DataOf(h, p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idleStream(h.Stream) {
		return &frame.ConnError{Code: frame.ProtocolError, Why: "DATA on a stream that has not begun"}
	}
	if c.recvWindow -= int64(len(p)); c.recvWindow < 0 {
		return &frame.ConnError{Code: frame.FlowControlError, Why: "more than the connection's window"}
	}
	s := c.stream(h.Stream)
	if s == nil {
		c.pay(nil, len(p)) // it was reset; the peer may not know yet
		return c.closedStream(h.Stream)
	}
	// What is thrown away is paid for all the same: the window is the connection's,
	// and other streams need it.
	if s.recvWindow -= int64(len(p)); s.recvWindow < 0 {
		c.pay(nil, len(p))
		return &frame.StreamError{Stream: h.Stream, Code: frame.FlowControlError, Why: "more than the stream's window"}
	}
	switch {
	case s.recvEnd:
		c.pay(nil, len(p))
		return &frame.StreamError{Stream: h.Stream, Code: frame.StreamClosed, Why: "DATA after the end"}
	case !s.begun:
		c.pay(nil, len(p))
		return &frame.StreamError{Stream: h.Stream, Code: frame.ProtocolError, Why: "DATA before the head"}
	}
	c.pay(s, len(p)-len(content)) // padding goes nowhere
	if len(content) == 0 && !h.Has(frame.EndStream) {
		if s.empty++; s.empty > maxEmpty {
			return &frame.ConnError{Code: frame.EnhanceYourCalm, Why: "too many empty frames"}
		}
	}
	if err := s.count(len(content), h.Has(frame.EndStream)); err != nil {
		c.pay(nil, len(content))
		return err
	}
	if s.quit != nil {
		c.pay(s, len(content))
	} else if len(content) > 0 {
		s.in = wire.Append(s.in, content)
	}
	if h.Has(frame.EndStream) {
		s.receivedAll()
	}
	s.cond.Broadcast()
	return nil
}

// maxEmpty bounds the DATA frames of a stream that say nothing.
const maxEmpty = 1000

// closedStream is what a frame on a stream that has ended means. We may have
// reset it without the peer's knowledge, so this is no reason to hang up.
func (c *Conn) closedStream(id uint32) error {
	if c.resetByUs(id) {
		return nil
	}
	return &frame.StreamError{Stream: id, Code: frame.StreamClosed, Why: "a frame on a stream that has ended"}
}

func (c *Conn) onReset(h frame.Head, p []byte) error {
	code, err := frame.ResetOf(h, p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idleStream(h.Stream) {
		return &frame.ConnError{Code: frame.ProtocolError, Why: "RST_STREAM of a stream that has not begun"}
	}
	s, now := c.stream(h.Stream), c.heard.Load()
	// Of those that have ended only the refused ones count: the others were answered.
	hurried := s != nil && now-s.born < int64(hurry) || s == nil && c.resetByUs(h.Stream)
	if c.server && hurried && !c.limits.take(time.Unix(0, now)) {
		return &frame.ConnError{Code: frame.EnhanceYourCalm, Why: "too many streams reset"}
	}
	if s == nil {
		return nil
	}
	if !c.server && code == frame.NoError && s.recvEnd {
		// The answer is whole; the rest of the question is not wanted (§8.1).
		s.sendEnd = true
		s.cond.Broadcast()
		c.drop(s)
		return nil
	}
	s.end(&ResetError{Code: code})
	return nil
}

func (c *Conn) onPing(h frame.Head, p []byte) error {
	content, err := frame.PingOf(h, p)
	if err != nil {
		return err
	}
	if !h.Has(frame.Ack) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err := c.reply(); err != nil {
			return err
		}
		c.put(frame.AppendPing(c.begin(32), frame.Ack, content))
		return nil
	}
	if content == goodbye {
		c.last()
	}
	return nil
}

func (c *Conn) onWindow(h frame.Head, p []byte) error {
	n, err := frame.WindowOf(h, p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.Stream == 0 {
		if c.sendWindow += int64(n); c.sendWindow > frame.MaxWindow {
			return &frame.ConnError{Code: frame.FlowControlError, Why: "a window larger than there can be"}
		}
		c.wakeBlocked()
		return nil
	}
	if c.idleStream(h.Stream) {
		return &frame.ConnError{Code: frame.ProtocolError, Why: "WINDOW_UPDATE of a stream that has not begun"}
	}
	s := c.stream(h.Stream)
	if s == nil {
		return nil
	}
	if s.sendWindow += int64(n); s.sendWindow > frame.MaxWindow {
		return &frame.StreamError{Stream: h.Stream, Code: frame.FlowControlError, Why: "a window larger than there can be"}
	}
	s.cond.Broadcast()
	return nil
}

func (c *Conn) onSettings(h frame.Head, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = true
	if !h.Has(frame.Ack) {
		if err := c.reply(); err != nil {
			return err
		}
		if !c.server {
			c.peer.maxStreams = max(c.peer.maxStreams, 1)
		}
	}
	before := c.peer.window
	if err := frame.SettingsOf(h, p, c.set); err != nil {
		return err
	}
	if err := c.widen(c.peer.window - before); err != nil {
		return err
	}
	if !h.Has(frame.Ack) {
		c.put(frame.AppendSettingsAck(c.begin(16)))
		c.wakeQueue()
		c.wakeBlocked()
	}
	return nil
}

func (c *Conn) set(s frame.Setting, v uint32) error {
	switch s {
	case frame.TableSize:
		c.enc.Limit(v)
	case frame.MaxStreams:
		c.peer.maxStreams = v
	case frame.MaxSize:
		c.peer.maxFrame = int(v)
	case frame.MaxList:
		c.peer.maxList = v
	case frame.FirstSize:
		c.peer.window = int64(v)
	}
	return nil
}

// widen changes the windows of open streams. It is done once for a frame, however
// often that says it.
func (c *Conn) widen(more int64) error {
	if more == 0 {
		return nil
	}
	for _, stream := range c.streams {
		if stream.sendWindow += more; stream.sendWindow > frame.MaxWindow {
			return &frame.ConnError{Code: frame.FlowControlError, Why: "a window larger than there can be"}
		}
		stream.cond.Broadcast()
	}
	return nil
}

func (c *Conn) onGoAway(h frame.Head, p []byte) error {
	last, code, err := frame.GoAwayOf(h, p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = true
	if !c.server {
		for id, s := range c.streams {
			if id > last {
				s.end(&UnsentError{Err: &GoAwayError{Code: code}})
			}
		}
	}
	c.wakeQueue()
	c.settle()
	return nil
}
