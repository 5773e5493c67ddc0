package wire

import (
	"crypto/tls"
	"io"
	"net"
	"syscall"
)

// under is a connection that only looks at what passes through it.
type under interface{ Under() net.Conn }

// counted is one that wants to know what was read past it.
type counted interface {
	under
	Passed(n int, err error)
}

// A Reader reads a connection. While there is nothing to read it holds no
// buffer: it waits for the socket first, and borrows then. It is for one
// goroutine.
type Reader struct {
	conn  net.Conn
	buf   []byte // the whole of it, nil while there is nothing in it
	at    int    // the first byte that has not been taken
	end   int
	begun bool
	quiet bool // of the last look

	kind  kind
	raw   syscall.RawConn
	count counted
	try   func(uintptr) bool
	peek  func(uintptr)
	below *Below // of the records
	alone bool   // others are let run first
	waits bool   // the try before found nothing
	head  int    // bytes that come before what is read from the socket, as Reset found
	n     int    // of the last try, or of the letter that was sent
	err   error  // likewise
	one   [1]byte

	posts  bool // a letter may wait
	posted bool // it is in the box, whose lock guards it, letter, n and err meanwhile
	failed bool // it could not be sent
	unsent bool // and nothing of it has gone
	fd     uintptr
	letter []byte // of Get: what is to be sent before the next Fill waits
}

type kind uint8

const (
	ordinary kind = iota // read with a buffer
	socket               // wait for the socket, then read
	records              // read a byte: the rest of the record is kept below
)

// Reset makes the reader one of c.
func (r *Reader) Reset(c net.Conn) {
	*r = Reader{conn: c, head: ahead(c)}
	for c != nil {
		switch below := c.(type) {
		case *net.TCPConn:
			raw, err := below.SyscallConn()
			if err != nil {
				return
			}
			r.kind, r.raw, r.try, r.peek, r.alone = socket, raw, r.attempt, r.look, alone()
			_, sends := r.count.(sender)
			r.posts = r.alone && (sends || r.count == nil)
			return
		case *tls.Conn:
			r.kind = records
			r.below, _ = below.NetConn().(*Below)
			return
		case under:
			if n, ok := c.(counted); ok {
				if r.count != nil {
					return // counted twice: leave it to the connections
				}
				r.count = n
			}
			c = below.Under()
		default:
			return
		}
	}
}

// Bytes are what has been read and not been taken. They are borrowed until the
// next Fill.
func (r *Reader) Bytes() []byte { return r.buf[r.at:r.end] }

// Take removes the first n bytes.
func (r *Reader) Take(n int) { r.at += n }

// Fill waits for more bytes and adds them to those that are there; room for them
// is made, up to most bytes in all. An error of io.ErrShortBuffer means that there
// are so many already.
func (r *Reader) Fill(most int) error {
	if r.at == r.end {
		return r.first()
	}
	if r.at > 0 && r.end == len(r.buf) {
		r.end = copy(r.buf, r.buf[r.at:r.end])
		r.at = 0
	}
	if r.end == len(r.buf) {
		if r.end >= most {
			return io.ErrShortBuffer
		}
		r.grow(most)
	}
	n, err := r.conn.Read(r.buf[r.end:])
	r.end += n
	if n > 0 {
		return nil
	}
	return noProgress(err)
}

func noProgress(err error) error {
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

func (r *Reader) grow(most int) {
	b := Get(min(2*len(r.buf), max(most, len(r.buf)+1)))
	b = b[:cap(b)]
	r.end = copy(b, r.buf[r.at:r.end])
	r.at = 0
	Put(r.buf)
	r.buf = b
}

// first waits for bytes when there are none.
func (r *Reader) first() error {
	if !r.begun { // what was read to find out what this is comes first
		r.begun = true
		return r.plain()
	}
	switch r.kind {
	case socket:
		return r.ready()
	case records:
		r.Release()
		n, err := r.conn.Read(r.one[:])
		if n == 0 {
			return noProgress(err)
		}
		r.borrow()
		r.buf[0] = r.one[0]
		r.end = 1
		if r.below != nil { // the rest of the record, without waiting for another
			r.below.idle = true
			n, _ := r.conn.Read(r.buf[1:]) // an error comes again
			r.below.idle = false
			r.end += n
		}
		return nil
	}
	return r.plain()
}

func (r *Reader) plain() error {
	if r.buf == nil {
		r.borrow()
	}
	n, err := r.conn.Read(r.buf)
	r.at, r.end = 0, n
	if n > 0 {
		return nil
	}
	r.Release()
	return noProgress(err)
}

func (r *Reader) borrow() {
	b := Get(Size)
	r.buf, r.at, r.end = b[:cap(b)], 0, 0
}

// ready reads the socket past the connection's own Read, so that the buffer can
// be given back when there is nothing yet.
func (r *Reader) ready() error {
	r.n, r.err, r.waits, r.unsent = 0, nil, false, false
	if r.alone && r.letter == nil {
		giveWay() // before the socket is held: what is closed meanwhile is not read any more
	}
	err := r.raw.Read(r.try)
	if err == nil {
		err = r.err
	}
	switch {
	case r.letter != nil: // reading is not allowed any more: what is to be sent does not know
		if sent := r.rest(0); sent != nil {
			return sent
		}
	case r.failed:
		r.failed = false
		return err
	}
	if r.count != nil {
		r.count.Passed(r.n, err)
	}
	if r.n > 0 {
		return nil
	}
	r.Release()
	if err == nil {
		return io.EOF
	}
	return err
}

// attempt is called with the socket, and again when it has become ready.
func (r *Reader) attempt(fd uintptr) bool {
	if r.letter != nil && !r.send(fd) {
		return true
	}
	if r.buf == nil {
		r.borrow()
	}
	n, no := receive(fd, r.buf)
	switch no {
	case 0:
		r.n, r.at, r.end = n, 0, n
		if r.alone {
			tookTurn(r.waits)
		}
	case syscall.EAGAIN:
		r.waits = true
		r.Release()
		return false
	default:
		r.err = broken(r.conn, "read", no)
	}
	return true
}

// send has the letter sent with those of others, and reports whether it is out.
func (r *Reader) send(fd uintptr) bool {
	r.post(fd)
	giveWay()
	err := r.deliver()
	r.n, r.err, r.failed = 0, err, err != nil
	return err == nil
}

// Unsent reports whether the last Fill has failed because nothing of what was posted
// could be sent.
func (r *Reader) Unsent() bool { return r.unsent }

// Release gives the buffer back; what is in it is lost.
func (r *Reader) Release() {
	if r.buf != nil {
		Put(r.buf)
		r.buf, r.at, r.end = nil, 0, 0
	}
}
