package inbound

import (
	"errors"
	"io"
	"sync/atomic"

	"github.com/weftmesh/weft/proxy/internal/clock"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// frames is the request's body as the layers below read it: the sizes of its
// pieces are counted, and when it came to its end is remembered.
type frames struct {
	message.Body
	c     *counts
	ended atomic.Int64 // by clock.Now; 0 before
}

// Next is message.Body's.
func (f *frames) Next() ([]byte, error) {
	p, err := f.Body.Next()
	switch {
	case err == nil:
		f.c.requestFrames.Observe(float64(len(p)))
	case errors.Is(err, io.EOF) && f.ended.Load() == 0:
		f.ended.Store(int64(clock.Now()))
	}
	return p, err
}

// Body is message.Client's.
func (x *exchange) Body() message.Body {
	b := x.Client.Body()
	if b == nil || x.counts == nil {
		return b
	}
	x.frames.Body, x.frames.c = b, x.counts
	return &x.frames
}

// Write is message.Client's.
func (x *exchange) Write(p []byte) error {
	if x.counts != nil {
		x.counts.responseFrames.Observe(float64(len(p)))
	}
	return x.Client.Write(p)
}
