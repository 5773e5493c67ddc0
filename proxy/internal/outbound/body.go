package outbound

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// replay is a request body that can be read again from the start as long as no
// more than max bytes of it have been read. It never reads ahead of its reader.
type replay struct {
	max int
	eof func() // called once, when the end has been read

	mu      sync.Mutex
	turn    *sync.Cond // src has been read, or a new reader begins
	src     io.Reader
	reading bool   // someone is inside src.Read, without the lock
	buf     []byte // what has been read, while it can be replayed
	over    bool   // more than max has been read
	err     error  // of src; io.EOF mostly
	gen     int    // readers of an older try are told to stop
}

var (
	errSuperseded = errors.New("another try reads the body now")
	errBody       = errors.New("the request body is malformed or incomplete")
)

func newReplay(src io.Reader, most int, eof func()) *replay {
	b := &replay{src: src, max: most, eof: eof}
	b.turn = sync.NewCond(&b.mu)
	return b
}

// empty reports whether there is nothing to send.
func empty(r *http.Request) bool { return r.Body == nil || r.Body == http.NoBody }

// again reports whether a new reader would see the whole body.
func (b *replay) again() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.over && (b.err == nil || errors.Is(b.err, io.EOF))
}

// broken is why the client's body did not come to its end.
func (b *replay) broken() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil || errors.Is(b.err, io.EOF) {
		return nil
	}
	return fmt.Errorf("%w: %w", errBody, b.err)
}

// finished reports whether the end has been read.
func (b *replay) finished() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Is(b.err, io.EOF)
}

const (
	// linger is how long the rest of a body that nobody wants is waited for.
	linger = 20 * time.Millisecond
	// leftover is how much of it is read to save the connection, in bytes.
	leftover = 256 << 10
)

// end stops all reading: nobody is inside src, or will be, when it returns. If
// the client has sent the rest, that is taken off the connection so that the next
// request can be read; else reading is left impossible. deadline bounds src's
// reads; the zero time is no bound.
//
// net/http, when told of full duplex, panics on the next request if it comes to
// the end of the body by itself after the handler has returned (Go 1.26).
func (b *replay) end(deadline func(time.Time)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gen++
	b.turn.Broadcast()
	if b.err != nil {
		return
	}
	deadline(time.Now().Add(linger))
	for b.reading {
		b.turn.Wait()
	}
	if b.err == nil {
		_, b.err = io.CopyN(io.Discard, b.src, leftover)
	}
	if errors.Is(b.err, io.EOF) {
		deadline(time.Time{})
		return
	}
	deadline(time.Unix(1, 0))
}

// reader reads from the start. It ends all readers before it.
func (b *replay) reader() io.ReadCloser {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gen++
	b.turn.Broadcast()
	return &reader{b: b, gen: b.gen}
}

type reader struct {
	b   *replay
	gen int
	at  int
}

func (r *reader) Read(p []byte) (int, error) {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case r.gen != b.gen:
			return 0, errSuperseded
		case r.at < len(b.buf):
			n := copy(p, b.buf[r.at:])
			r.at += n
			return n, nil
		case b.err != nil:
			return 0, b.err
		case !b.reading:
			return r.more(p)
		}
		// A try that is over is still waiting for the client; what it gets is kept.
		b.turn.Wait()
	}
}

// more reads from the client. It is called with the lock held.
func (r *reader) more(p []byte) (int, error) {
	b := r.b
	b.reading = true
	b.mu.Unlock()
	n, err := b.src.Read(p)
	b.mu.Lock()
	b.reading = false
	b.turn.Broadcast()
	if err != nil && b.err == nil {
		b.err = err
		if errors.Is(err, io.EOF) && b.eof != nil {
			b.eof()
		}
	}
	current := r.gen == b.gen
	switch {
	case b.over:
	case len(b.buf)+n <= b.max || !current:
		b.buf = append(b.buf, p[:n]...)
		if current {
			r.at += n
		}
	default:
		b.over, b.buf, r.at = true, nil, 0
	}
	if !current {
		return 0, errSuperseded
	}
	return n, err
}

// Close leaves the client's body to the server, which ends it with the request.
func (r *reader) Close() error { return nil }
