package relay

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/spare"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

// A Replay is a body that can be read again from the start as long as no more
// than a bound of it has been read. It never reads ahead of its reader.
type Replay struct {
	max int
	eof func() // called once, when the end has been read

	mu      sync.Mutex
	turn    sync.Cond // of mu
	src     message.Body
	reading bool   // someone is inside src.Next, without the lock
	lent    bool   // someone has src's piece
	buf     []byte // what has been read, while it can be replayed
	over    bool   // more than max has been read
	alone   bool   // there has been one reader, which buf has never been given to
	err     error  // of src; io.EOF mostly
	gen     int    // readers of an older try are told to stop
	first   reader // the first reader's memory
}

var replays spare.Pool[Replay]

// ErrSuperseded ends the readers of an older try.
var ErrSuperseded = errors.New("another try reads the body now")

// NewReplay keeps most bytes of src. eof may be nil.
func NewReplay(src message.Body, most int, eof func()) *Replay {
	b := replays.Get()
	b.src, b.max, b.eof = src, most, eof
	b.turn.L = &b.mu
	return b
}

// Free ends the body for good, and gives its memory back if it had one reader
// only, which must have been waited for.
func (b *Replay) Free() {
	if b == nil {
		return
	}
	alone := b.alone
	b.End()
	if !alone {
		return
	}
	*b = Replay{}
	replays.Put(b)
}

// Again reports whether a new reader would see the whole body.
func (b *Replay) Again() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.over && (b.err == nil || errors.Is(b.err, io.EOF))
}

// Within reports whether a new reader would see the whole body, of which no more
// than most bytes have been read yet.
func (b *Replay) Within(most int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.over && len(b.buf) <= most && (b.err == nil || errors.Is(b.err, io.EOF))
}

// Broken is why the client's body did not come to its end, nil if it may yet.
func (b *Replay) Broken() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil || errors.Is(b.err, io.EOF) {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrBody, b.err)
}

// Finished reports whether the end has been read.
func (b *Replay) Finished() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Is(b.err, io.EOF)
}

// End ends all reading and forgets what was kept. A reader that waits for the
// client has a moment; when End returns nobody reads.
func (b *Replay) End() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gen++
	b.turn.Broadcast()
	if b.reading || b.lent {
		told := make(chan struct{})
		late := time.AfterFunc(linger, func() { defer close(told); b.src.Abort(errOver) })
		for b.reading || b.lent {
			b.turn.Wait()
		}
		if !late.Stop() { // it must not end what its memory is used for next
			b.mu.Unlock()
			<-told
			b.mu.Lock()
		}
	}
	b.forget()
}

func (b *Replay) forget() {
	if b.alone && b.buf != nil { // no reader has a part of it
		wire.Put(b.buf)
	}
	b.buf, b.over = nil, true
}

// Reader reads from the start. It ends all readers before it; of those, one may
// still be waiting for the client, and what it gets is kept for this one.
func (b *Replay) Reader() message.Body {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gen++
	b.turn.Broadcast()
	if b.gen == 1 {
		b.alone = true
		b.first = reader{b: b, gen: 1}
		return &b.first
	}
	b.alone = false
	return &reader{b: b, gen: b.gen}
}

type reader struct {
	b    *Replay
	gen  int
	at   int
	lent bool
}

func (r *reader) Next() ([]byte, error) {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	r.give()
	for {
		switch {
		case r.gen != b.gen:
			return nil, ErrSuperseded
		case r.at < len(b.buf):
			p := b.buf[r.at:]
			r.at = len(b.buf)
			return p, nil
		case b.err != nil:
			return nil, b.err
		case !b.reading && !b.lent:
			if p, ok, err := r.more(); ok {
				return p, err
			}
			continue
		}
		b.turn.Wait()
	}
}

// Release tells that the last piece is not used any more, and that no other is
// asked for.
func (r *reader) Release() {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.give()
}

// give gives src's piece back.
func (r *reader) give() {
	if r.lent {
		r.lent, r.b.lent = false, false
		r.b.turn.Broadcast()
	}
}

// more reads from the client. It is called with the lock held.
func (r *reader) more() (p []byte, ok bool, err error) {
	b := r.b
	p, err = b.pull()
	current := r.gen == b.gen
	if err != nil {
		if b.err == nil {
			b.err = err
			if errors.Is(err, io.EOF) && b.eof != nil {
				b.eof()
			}
		}
		return nil, false, nil
	}
	switch {
	case b.over:
	case len(b.buf)+len(p) <= b.max || !current:
		if b.alone {
			b.buf = wire.Append(b.buf, p)
		} else {
			b.buf = append(b.buf, p...) // not a borrowed one: a reader of before may have a part of it
		}
		if current {
			r.at = len(b.buf)
		}
	default:
		b.forget()
		r.at = 0
	}
	if !current {
		return nil, true, ErrSuperseded
	}
	r.lent, b.lent = true, true
	return p, true, nil
}

// pull waits for the client without the lock, which its caller has, and has again
// even after a bug below: to unlock it twice would end the process.
func (b *Replay) pull() ([]byte, error) {
	b.reading = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.reading = false
		b.turn.Broadcast()
	}()
	return b.src.Next()
}

func (r *reader) Ready() bool {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.gen != b.gen || r.at < len(b.buf) || b.err != nil {
		return true
	}
	return !b.reading && (!b.lent || r.lent) && b.src.Ready()
}

func (r *reader) Trailer() message.Fields {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(b.err, io.EOF) {
		return b.src.Trailer()
	}
	return nil
}

// Abort ends the reading of the client's body.
func (r *reader) Abort(err error) {
	r.b.mu.Lock()
	current := r.gen == r.b.gen
	r.b.mu.Unlock()
	if current {
		r.b.src.Abort(err)
	}
}
