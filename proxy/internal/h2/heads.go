package h2

import (
	"errors"
	"strconv"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/hpack"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

// heads is the block of fields that is being read.
type heads struct {
	stream uint32
	end    bool // of the stream
	block  []byte
	parts  int
	self   error // the stream depends on itself
}

// maxParts bounds the frames of one block.
const maxParts = 256

func (c *Conn) onHeaders(h frame.Head, p []byte) error {
	part, err := frame.HeadersOf(h, p)
	self, wrong := errors.AsType[*frame.StreamError](err)
	if err != nil && !wrong {
		return err
	}
	if c.server && h.Stream%2 == 0 {
		return &frame.ConnError{Code: frame.ProtocolError, Why: "a client's stream with an even number"}
	}
	c.heads = heads{stream: h.Stream, end: h.Has(frame.EndStream), block: c.heads.block}
	if wrong {
		c.heads.self = self
	}
	if h.Has(frame.EndHeaders) {
		return c.headEnd(part)
	}
	return c.headPart(part)
}

func (c *Conn) onContinuation(h frame.Head, p []byte) error {
	if c.heads.stream == 0 {
		return &frame.ConnError{Code: frame.ProtocolError, Why: "CONTINUATION of nothing"}
	}
	if err := c.headPart(p); err != nil || !h.Has(frame.EndHeaders) {
		return err
	}
	return c.headEnd(c.heads.block)
}

func (c *Conn) headPart(p []byte) error {
	c.heads.parts++
	if c.heads.parts > maxParts || len(c.heads.block)+len(p) > int(c.cfg.MaxList)+frame.MinMaxSize {
		return &frame.ConnError{Code: frame.EnhanceYourCalm, Why: "a block of fields that does not end"}
	}
	c.heads.block = wire.Append(c.heads.block, p)
	return nil
}

// headEnd reads a whole block and gives it to its stream.
func (c *Conn) headEnd(block []byte) error {
	at := c.heads
	c.heads.stream = 0
	store := message.NewStore()
	c.decoding.Lock()
	fields, err := c.dec.Decode(store.Fields(), block, int(c.cfg.MaxList), store)
	c.decoding.Unlock()
	store.Reuse(fields)
	if c.heads.block != nil {
		wire.Put(c.heads.block)
		c.heads.block = nil
	}
	tooLong := err != nil && errors.Is(err, hpack.ErrTooLong) || len(fields) > maxFields
	kept := false // by a stream
	switch {
	case err != nil && !tooLong:
		err = &frame.ConnError{Code: frame.CompressionError, Why: err.Error()}
	case at.self != nil:
		c.mu.Lock()
		c.highest = max(c.highest, at.stream)
		c.mu.Unlock()
		err = at.self
	case c.server:
		kept, err = c.request(at, fields, store, tooLong)
	default:
		kept, err = c.response(at, fields, store, tooLong)
	}
	if !kept {
		store.Release()
	}
	return err
}

// maxFields bounds the fields of a head or trailer, as h1's does.
const maxFields = 4000

// request begins a stream, or ends one with a trailer. It reports whether the
// stream has kept the fields' store.
func (c *Conn) request(at heads, fields message.Fields, store *message.Store, tooLong bool) (kept bool, err error) {
	c.mu.Lock()
	if s := c.stream(at.stream); s != nil {
		defer c.mu.Unlock()
		return s.trailers(at, fields, store, tooLong)
	}
	if at.stream <= c.highest {
		defer c.mu.Unlock()
		if c.resetByUs(at.stream) {
			return false, nil
		}
		return false, &frame.ConnError{Code: frame.StreamClosed, Why: "HEADERS on a stream that has ended"}
	}
	// It was read before the end, and nobody would end its stream. Who has only said
	// all that there was to say (linger.go) refuses it below.
	if c.err != nil && !c.parting {
		defer c.mu.Unlock()
		return false, c.err
	}
	c.highest = at.stream
	switch {
	case c.lastSent != frame.MaxWindow, len(c.streams) >= int(c.cfg.MaxStreams), c.handled >= 2*int(c.cfg.MaxStreams):
		c.mu.Unlock()
		return false, &frame.StreamError{Stream: at.stream, Code: frame.RefusedStream, Why: "too many streams, or too late"}
	case tooLong:
		err := c.reply()
		if err == nil {
			c.tooLarge(at)
		}
		c.mu.Unlock()
		return false, err
	}
	s := c.open(at.stream)
	s.keep(store)
	if err := readRequest(&s.req, fields); err != nil {
		s.end(err)
		c.mu.Unlock()
		return true, &frame.StreamError{Stream: at.stream, Code: frame.ProtocolError, Why: err.Error()}
	}
	s.begun = true
	if err = s.lengths(&s.req.Fields, at.end, true); err == nil {
		s.req.Length = s.expect
		c.handled++
	} else {
		s.end(err)
	}
	c.mu.Unlock()
	if err == nil {
		c.cfg.Handle(s)
	}
	return true, err
}

// tooLarge answers 431 to a head that is too long to be looked at (RFC 6585 §5).
func (c *Conn) tooLarge(at heads) {
	c.block = c.enc.Append(c.enc.Begin(c.block[:0]), ":status", "431", false)
	c.put(frame.AppendBlock(c.begin(64), at.stream, c.block, true, c.peer.maxFrame))
	if !at.end {
		c.put(frame.AppendReset(c.begin(16), at.stream, frame.NoError))
		c.forgotten(at.stream)
	}
}

// response gives a client's stream its head, an interim one, or its trailer.
func (c *Conn) response(at heads, fields message.Fields, store *message.Store, tooLong bool) (kept bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idleStream(at.stream) {
		return false, &frame.ConnError{Code: frame.ProtocolError, Why: "HEADERS on a stream that has not begun"}
	}
	s := c.stream(at.stream)
	switch {
	case s == nil:
		return false, nil // it was reset; the table has been kept up
	case s.begun:
		return s.trailers(at, fields, store, tooLong)
	case tooLong:
		return false, &frame.StreamError{Stream: at.stream, Code: frame.EnhanceYourCalm, Why: "a head that is too long"}
	}
	res := &s.final
	if err := readResponse(res, fields); err != nil {
		return false, &frame.StreamError{Stream: at.stream, Code: frame.ProtocolError, Why: err.Error()}
	}
	if res.Status < 200 {
		if at.end || len(s.interim) >= maxInterim {
			return false, &frame.StreamError{Stream: at.stream, Code: frame.ProtocolError, Why: "an interim answer that is the last, or too many"}
		}
		hint := *res
		hint.Fields = hint.Fields.Keep()
		s.interim = append(s.interim, &hint)
		s.cond.Broadcast()
		return false, nil
	}
	s.keep(store)
	s.begun = true
	if err := s.lengths(&res.Fields, at.end, !message.Bodyless(s.method, res.Status)); err != nil {
		return true, err
	}
	res.Length = s.expect
	s.cond.Broadcast()
	return true, nil
}

// maxInterim bounds the interim answers that nobody has fetched.
const maxInterim = 32

// trailers end a stream.
func (s *Stream) trailers(at heads, fields message.Fields, store *message.Store, tooLong bool) (kept bool, err error) {
	switch {
	case s.recvEnd:
		return false, &frame.StreamError{Stream: s.id, Code: frame.StreamClosed, Why: "HEADERS after the end"}
	case !at.end:
		return false, &frame.StreamError{Stream: s.id, Code: frame.ProtocolError, Why: "a trailer that is not the end"}
	case tooLong:
		return false, &frame.StreamError{Stream: s.id, Code: frame.EnhanceYourCalm, Why: "a trailer that is too long"}
	}
	for i := range fields {
		f := &fields[i]
		if strings.HasPrefix(f.Name, ":") {
			return false, &frame.StreamError{Stream: s.id, Code: frame.ProtocolError, Why: "a pseudo-header field in a trailer"}
		}
		if err := check(f); err != nil {
			return false, &frame.StreamError{Stream: s.id, Code: frame.ProtocolError, Why: err.Error()}
		}
	}
	if err := s.count(0, true); err != nil {
		return false, err
	}
	s.keep(store)
	s.trailer = fields
	s.receivedAll()
	s.cond.Broadcast()
	return true, nil
}

// lengths reads what the head says of the body's length. counts is false if the
// head's length is not that of what follows.
func (s *Stream) lengths(fields *message.Fields, end, counts bool) error {
	s.expect = message.Unknown
	said := 0
	for i := range *fields {
		f := &(*fields)[i]
		if f.Name != "content-length" {
			continue
		}
		n, err := strconv.ParseUint(f.Value, 10, 63)
		if err != nil || f.Value[0] == '+' || s.expect >= 0 && s.expect != int64(n) {
			return &frame.StreamError{Stream: s.id, Code: frame.ProtocolError, Why: "a content-length that is none"}
		}
		s.expect = int64(n)
		said++
	}
	if said > 1 { // equal ones may be one (RFC 9110 §8.6); HTTP/1 behind us might not think so
		fields.Set("content-length", strconv.FormatInt(s.expect, 10))
	}
	if end {
		wrong := counts && s.expect > 0
		s.expect = 0
		if wrong {
			return &frame.StreamError{Stream: s.id, Code: frame.ProtocolError, Why: "less content than content-length says"}
		}
		s.receivedAll()
		return nil
	}
	s.measured = counts && s.expect >= 0
	if !counts {
		s.expect = 0
	}
	return nil
}

// count compares the content that has come with content-length.
func (s *Stream) count(n int, end bool) error {
	if !s.measured {
		return nil
	}
	s.got += int64(n)
	if s.got > s.expect || end && s.got != s.expect {
		return &frame.StreamError{Stream: s.id, Code: frame.ProtocolError, Why: "content that is not as long as content-length says"}
	}
	return nil
}
