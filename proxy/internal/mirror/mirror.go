// Package mirror copies a request's body while it is passed on. A copy never
// holds the original back: one that is read too slowly ends with an error.
package mirror

import (
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// Kept is how much of a body a copy may be behind, in bytes.
const Kept = 256 << 10

// Errors that end a copy.
var (
	ErrSlow = errors.New("the copy is read too slowly")
	ErrOver = errors.New("the request is over before its body")
)

// A Tee is a body of which copies are made. Copies must be asked for before the
// first piece is read.
type Tee struct {
	message.Body
	copies []*Copy
}

// Next returns the next piece and gives it to the copies.
func (t *Tee) Next() ([]byte, error) {
	p, err := t.Body.Next()
	for _, c := range t.copies {
		c.give(p, err, t.Body)
	}
	return p, err
}

// Copy returns a body that will have what this one has.
func (t *Tee) Copy() *Copy {
	c := &Copy{}
	c.turn = sync.NewCond(&c.mu)
	t.copies = append(t.copies, c)
	return c
}

// End ends the copies that have not come to their end.
func (t *Tee) End() {
	for _, c := range t.copies {
		c.Abort(ErrOver)
	}
}

// A Copy is a message.Body for one reader.
type Copy struct {
	mu      sync.Mutex
	turn    *sync.Cond
	buf     []byte
	lent    []byte // what the reader has
	err     error
	trailer message.Fields
}

func (c *Copy) give(p []byte, err error, from message.Body) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.turn.Broadcast()
	switch {
	case c.err != nil:
	case errors.Is(err, io.EOF):
		c.err, c.trailer = err, Keep(from.Trailer())
	case err != nil:
		c.err, c.buf = err, nil
	case len(c.buf)+len(p) > Kept:
		c.err, c.buf = ErrSlow, nil
	default:
		c.buf = append(c.buf, p...)
	}
}

// Next waits for the next piece.
func (c *Copy) Next() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.buf) == 0 && c.err == nil {
		c.turn.Wait()
	}
	if len(c.buf) == 0 {
		return nil, c.err
	}
	p := c.buf
	c.buf, c.lent = c.lent[:0], p
	return p, nil
}

// Ready reports whether Next would not wait.
func (c *Copy) Ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.buf) > 0 || c.err != nil
}

// Trailer is what followed the body.
func (c *Copy) Trailer() message.Fields {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trailer
}

// Abort ends the copy.
func (c *Copy) Abort(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err, c.buf = err, nil
	}
	c.turn.Broadcast()
}

// Keep returns fields that stay when the original's are gone.
func Keep(f message.Fields) message.Fields {
	kept := f.Clone(0)
	for i := range kept {
		kept[i].Name, kept[i].Value = strings.Clone(kept[i].Name), strings.Clone(kept[i].Value)
	}
	return kept
}
