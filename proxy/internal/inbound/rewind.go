package inbound

import (
	"errors"
	"io"
	"sync"
)

// rewindable is how much of a body is remembered. When a pooled connection turns
// out to be dead before anything was written, the library has read at most its
// own write buffer of 4 KiB.
const rewindable = 8 << 10

var errTooFar = errors.New("too much of the body has been read to send it again")

// rewind is a request body that can be begun again while little of it has been
// read, so that a request is not lost to a connection the application has closed
// in the meantime. Closing it does nothing: the server closes the body below.
type rewind struct {
	mu   sync.Mutex
	body io.Reader
	head []byte // what has been read
	lost bool   // more has been read than is remembered
}

// reader is one pass over the body. Only the newest may be used.
type reader struct {
	*rewind
	at int // of head
}

func newRewind(body io.Reader) *rewind { return &rewind{body: body} }

// again starts a pass from the beginning.
func (w *rewind) again() (io.ReadCloser, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost {
		return nil, errTooFar
	}
	return &reader{rewind: w}, nil
}

func (r *reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	if r.at < len(r.head) {
		n := copy(p, r.head[r.at:])
		r.at += n
		r.mu.Unlock()
		return n, nil
	}
	r.mu.Unlock()
	n, err := r.body.Read(p) // outside the lock: it may wait for the client
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.head)+n > rewindable {
		r.lost, r.head, r.at = true, nil, 0
	}
	if !r.lost {
		r.head = append(r.head, p[:n]...)
		r.at = len(r.head)
	}
	return n, err
}

func (r *reader) Close() error { return nil }
