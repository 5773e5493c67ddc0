package outbound

import (
	"time"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// quiet ends an exchange in which neither body has moved for a while.
type quiet struct {
	after time.Duration
	timer *time.Timer
}

func newQuiet(after time.Duration, stop func(error)) *quiet {
	return &quiet{after, time.AfterFunc(after, func() { stop(errIdleTimeout) })}
}

// body tells of each piece of a body; nil is none, and stays so.
func (q *quiet) body(b message.Body) message.Body {
	if q == nil || b == nil {
		return b
	}
	return &heard{b, q}
}

// moved tells that something has come.
func (q *quiet) moved() {
	if q != nil {
		q.timer.Reset(q.after)
	}
}

func (q *quiet) end() {
	if q != nil {
		q.timer.Stop()
	}
}

type heard struct {
	message.Body
	q *quiet
}

func (h *heard) Next() ([]byte, error) {
	p, err := h.Body.Next()
	if err == nil {
		h.q.moved()
	}
	return p, err
}
