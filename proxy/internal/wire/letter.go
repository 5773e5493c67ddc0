package wire

import (
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// What goroutines have to send before each waits for an answer goes out together,
// when the first of them has its turn again (see giveWay). On a busy processor that
// is a round of all who are ready: the kernel's way out is then walked many times in
// a row instead of in turn with everything else, and a peer that others wake already
// is not woken for each. Where nobody else is ready it goes out at once.

// maxLetters bounds what waits, and how long it is sent without a break.
const maxLetters = 64

// box has the readers whose letters wait. Each is inside its RawConn.Read meanwhile: so
// its descriptor is its own until the letter is out.
var box struct {
	mu   sync.Mutex
	full []*Reader
}

// Post keeps p, a buffer of Get, to be sent before the next Fill waits, and reports
// whether it does: the buffer is the caller's if not. What becomes of it Fill returns.
// Nothing may be written to the connection meanwhile.
func (r *Reader) Post(p []byte) bool {
	if !r.Posts() || r.at != r.end || r.letter != nil || len(p) == 0 {
		return false
	}
	r.letter = p
	return true
}

// post puts the letter into the box, to be sent by whoever comes first.
func (r *Reader) post(fd uintptr) {
	r.fd, r.n, r.err = fd, 0, nil
	box.mu.Lock()
	if len(box.full) >= maxLetters {
		sendAll()
	}
	r.posted = true
	box.full = append(box.full, r)
	box.mu.Unlock()
}

// sendAll empties the box as far as the sockets take it at once. Its lock is held.
func sendAll() {
	for i, r := range box.full {
		n, no := send(r.fd, r.letter)
		if r.n = n; no != 0 && no != unix.EAGAIN {
			r.err = broken(r.conn, "write", no)
		}
		r.posted = false
		box.full[i] = nil
	}
	box.full = box.full[:0]
}

// deliver sees to it that the letter goes out, and waits for that if it must. unsent is
// set if an error has come before any of it had gone.
func (r *Reader) deliver() error {
	p := r.letter
	box.mu.Lock()
	if r.posted {
		sendAll()
	}
	n, err := r.n, r.err
	over := err != nil || n == len(p)
	if over {
		r.letter = nil
	}
	box.mu.Unlock()
	if s, ok := r.count.(sender); ok {
		s.Sent(n, err)
	}
	if over {
		Put(p)
		r.unsent = n == 0 && err != nil
		return err
	}
	return r.rest(n)
}

// rest sends the letter from byte n on, and waits until it is out.
func (r *Reader) rest(n int) error {
	m, err := r.conn.Write(r.letter[n:]) // which counts by itself
	if n += m; err == nil && n < len(r.letter) {
		err = io.ErrShortWrite
	}
	r.Discard()
	r.unsent = n == 0 && err != nil
	return err
}

// Discard takes back what was posted and has not been sent. Nobody may post or fill
// meanwhile, so the reader is not in the box.
func (r *Reader) Discard() {
	p := r.letter
	if p == nil {
		return
	}
	box.mu.Lock()
	r.letter = nil
	box.mu.Unlock()
	Put(p)
}

// Posts reports whether something can be posted at all.
func (r *Reader) Posts() bool { return r.posts && r.begun }

// Pending reports whether what was posted may not be out yet. Any goroutine may ask,
// within the lock that Post was called with.
func (r *Reader) Pending() bool {
	box.mu.Lock()
	defer box.mu.Unlock()
	return r.letter != nil
}
