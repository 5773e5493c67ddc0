package logtest

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weftmesh/weft/bus"
)

// Tap is a process's transport with the faults of a network in front: what it
// sends and hears may be lost, repeated, held back or changed.
type Tap struct {
	bus.Transport

	mu    sync.Mutex
	log   func(bus.Message) []bus.Message
	chunk func(n int64) bool
	out   bool

	// pulled counts requests for chunks, chunks those that were answered.
	pulled, chunks, asked, askBytes, answerBytes atomic.Int64
	published                                    atomic.Int64
	// got counts the chunks that this process received.
	got atomic.Int64
}

// OnLog decides what becomes of each log message that arrives; nil passes all.
func (t *Tap) OnLog(f func(bus.Message) []bus.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = f
}

// Deaf loses every log message that arrives.
func (t *Tap) Deaf() { t.OnLog(func(bus.Message) []bus.Message { return nil }) }

// OnChunk decides whether the nth chunk that this process serves is answered.
func (t *Tap) OnChunk(f func(n int64) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.chunk = f
}

// Mute makes publishing fail as without a connection.
func (t *Tap) Mute(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out = on
}

// Publish is the transport's, unless Mute.
func (t *Tap) Publish(subject string, header bus.Header, data []byte) error {
	t.mu.Lock()
	out := t.out
	t.mu.Unlock()
	if out {
		return bus.ErrDisconnected
	}
	if header["K"] == "batch" {
		t.published.Add(1)
	}
	return t.Transport.Publish(subject, header, data)
}

// Subscribe puts OnLog before the subscriber.
func (t *Tap) Subscribe(subject string, deliver func(bus.Message)) (bus.Subscription, error) {
	if !strings.HasSuffix(subject, ".log") {
		return t.Transport.Subscribe(subject, deliver)
	}
	return t.Transport.Subscribe(subject, func(m bus.Message) {
		t.mu.Lock()
		f := t.log
		t.mu.Unlock()
		if f == nil {
			deliver(m)
			return
		}
		for _, out := range f(m) {
			deliver(out)
		}
	})
}

// Request is the transport's; it counts the chunks that came.
func (t *Tap) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	body, err := t.Transport.Request(ctx, subject, data)
	if err == nil && strings.Contains(subject, ".peer.") {
		t.got.Add(1)
	}
	return body, err //nolint:wrapcheck // a tap is the transport, errors too
}

// Serve puts OnChunk before answers and counts.
func (t *Tap) Serve(subject, group string, answer func(bus.Request)) (bus.Subscription, error) {
	return t.Transport.Serve(subject, group, func(q bus.Request) {
		if strings.Contains(subject, ".peer.") {
			t.mu.Lock()
			f := t.chunk
			t.mu.Unlock()
			if n := t.pulled.Add(1); f != nil && !f(n) {
				return
			}
			t.chunks.Add(1)
		}
		if strings.HasSuffix(subject, ".ask") {
			t.asked.Add(1)
			t.askBytes.Store(int64(len(q.Data)))
			respond := q.Respond
			q.Respond = func(b []byte) error {
				t.answerBytes.Store(int64(len(b)))
				return respond(b)
			}
		}
		answer(q)
	})
}
