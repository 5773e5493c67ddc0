package wire

import (
	"io"
	"slices"
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

// box has the readers whose letters wait.
var box struct {
	mu   sync.Mutex
	full []*Reader
	at   *Reader // whose letter is being sent: a function for each would be memory for each
}

// Post keeps p, a buffer of Get, to be sent before the next Fill waits, and reports
// whether it does: the buffer is the caller's if not. What becomes of it Fill returns.
// Nothing may be written to the connection meanwhile.
func (r *Reader) Post(p []byte) bool {
	if !r.Posts() || r.at != r.end || r.letter != nil || len(p) == 0 {
		return false
	}
	box.mu.Lock()
	if len(box.full) >= maxLetters {
		sendAll()
	}
	r.letter, r.posted, r.n, r.err = p, true, 0, nil
	box.full = append(box.full, r)
	box.mu.Unlock()
	return true
}

// sendAll empties the box. Its lock is held.
func sendAll() {
	for i, r := range box.full {
		box.at = r
		if err := r.raw.Control(put); err != nil {
			r.err = err
		}
		r.posted = false
		box.full[i] = nil
	}
	box.full, box.at = box.full[:0], nil
}

// put sends what the socket takes at once.
func put(fd uintptr) {
	r := box.at
	n, no := send(fd, r.letter)
	if r.n = n; no != 0 && no != unix.EAGAIN {
		r.err = broken(r.conn, "write", no)
	}
}

// deliver sees to it that the letter goes out, and waits for that if it must.
// unsent says that an error has come before any of it had gone.
func (r *Reader) deliver() (unsent bool, err error) {
	p := r.letter
	box.mu.Lock()
	if r.posted {
		sendAll()
	}
	n, err := r.n, r.err
	gone := err != nil || n == len(p)
	if gone {
		r.letter = nil
	}
	box.mu.Unlock()
	if s, ok := r.count.(sender); ok {
		s.Sent(n, err)
	}
	if gone {
		Put(p)
		return n == 0 && err != nil, err
	}
	m, err := r.conn.Write(p[n:]) // which counts by itself
	if n += m; err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	r.Discard()
	return n == 0 && err != nil, err
}

// Discard takes back what was posted and has not been sent.
func (r *Reader) Discard() {
	p := r.letter
	if p == nil {
		return
	}
	box.mu.Lock()
	if r.posted {
		r.posted = false
		box.full = slices.DeleteFunc(box.full, func(other *Reader) bool { return other == r })
	}
	r.letter = nil
	box.mu.Unlock()
	Put(p)
}

// Posts reports whether something can be posted at all.
func (r *Reader) Posts() bool { return r.posts && r.begun }

// Pending reports whether what was posted may not be out yet. Any goroutine may ask.
func (r *Reader) Pending() bool {
	box.mu.Lock()
	defer box.mu.Unlock()
	return r.letter != nil
}
