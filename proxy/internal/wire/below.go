package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
)

// A Below is the connection below a tls.Conn. It lets whoever reads records take
// what the tls.Conn still has without waiting for more, so that no buffer is held
// by a connection that waits.
type Below struct {
	net.Conn
	idle bool   // do not wait
	sock Socket // c's, where c is one but for what was read ahead
	cut  error  // of a write that has failed

	reads atomic.Int32     // by the record, as much as it likes, or no more
	part  [recordHead]byte // of the record that begins
	have  int              // of part
	left  int              // of the record that has begun, in bytes
}

const (
	// recordHead is how long the head of a record is, in bytes.
	recordHead = 5
	// eager is how much is read where a record begins, in bytes: many short ones, but
	// no second long one.
	eager = 4 << 10
	// maxRoomy is how many connections may read more, which costs them less.
	maxRoomy = 8
)

// What a Below reads.
const (
	byRecord int32 = iota
	asItLikes
	noMore // it is closed
)

// roomy counts those that read as they like.
var roomy atomic.Int64

// NewBelow returns c to put a tls.Conn on.
func NewBelow(c net.Conn) *Below {
	b := &Below{Conn: c}
	b.sock.Reset(Passing(c))
	return b
}

// Passing is the connection below those that neither count nor change what is
// written: it may be written to in their stead.
func Passing(c net.Conn) net.Conn {
	for {
		at, ok := c.(under)
		_, counts := c.(sender)
		_, too := c.(counted)
		if !ok || counts || too {
			return c
		}
		c = at.Under()
	}
}

// Read is net.Conn's. But for a few connections it does not read beyond a long
// record: a tls.Conn that gets more makes room for two, 40 KiB, and keeps that as
// long as it lives (complaint F18).
func (b *Below) Read(p []byte) (int, error) {
	if b.idle {
		return 0, errNothing
	}
	if b.reads.Load() != asItLikes {
		p = p[:min(len(p), b.most())]
	}
	var n int
	var err error
	if b.sock.Open() && ahead(b.Conn) == 0 {
		n, err = b.sock.Read(p)
	} else {
		n, err = b.Conn.Read(p)
	}
	b.passed(p[:n])
	if err != nil && errors.Is(err, io.EOF) {
		err = errGone
	}
	return n, err
}

// errGone is the end of a connection whose peer has not said that it is one: a
// tls.Conn does not read on when it has been said (RFC 8446 §6.1). Between two
// records it would take the end for a good one, and what was cut off for whole.
var errGone = fmt.Errorf("the peer has gone without ending TLS: %w", io.ErrUnexpectedEOF)

// most is how much may be read.
func (b *Below) most() int {
	switch {
	case b.left > 0:
		return b.left
	case b.have > 0:
		return recordHead - b.have
	}
	return eager
}

// passed follows the records through what was read.
func (b *Below) passed(p []byte) {
	for len(p) > 0 && b.reads.Load() == byRecord {
		if b.left > 0 {
			n := min(b.left, len(p))
			b.left, p = b.left-n, p[n:]
			continue
		}
		n := copy(b.part[b.have:], p)
		b.have, p = b.have+n, p[n:]
		if b.have < recordHead {
			return
		}
		b.have, b.left = 0, int(b.part[3])<<8|int(b.part[4])
		if b.left > eager && (roomy.Add(1) > maxRoomy || !b.reads.CompareAndSwap(byRecord, asItLikes)) {
			roomy.Add(-1)
		}
	}
}

// Close is net.Conn's.
func (b *Below) Close() error {
	if b.reads.Swap(noMore) == asItLikes {
		roomy.Add(-1)
	}
	return b.Conn.Close()
}

// Write is net.Conn's, but that nothing follows a write that has failed. A tls.Conn
// that is closed then still says goodbye: the peer would take that for the rest of a
// record, or for the one that it is waiting for, and see a bad record MAC.
func (b *Below) Write(p []byte) (n int, err error) {
	if b.cut != nil {
		return 0, b.cut
	}
	if b.sock.Open() {
		n, err = b.sock.Write(p)
	} else {
		n, err = b.Conn.Write(p)
	}
	if err != nil {
		b.cut = err
	}
	return n, err
}

// Under is the connection below.
func (b *Below) Under() net.Conn { return b.Conn }

// CloseWrite ends our direction, where the connection below can.
func (b *Below) CloseWrite() error {
	if half, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return b.Close()
}

// nothing is a timeout, which a tls.Conn takes for no reason to give up.
type nothing struct{}

func (nothing) Error() string   { return "nothing has come yet" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true }

var errNothing net.Error = nothing{}
