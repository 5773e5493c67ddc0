package outbound

import (
	"errors"
	"io"
	"net/http"
	"sync"
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

var errSuperseded = errors.New("another try reads the body now")

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
	return !b.over
}

// finished reports whether the end has been read.
func (b *replay) finished() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Is(b.err, io.EOF)
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
