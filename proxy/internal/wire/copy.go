package wire

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
)

// sender is a connection that wants to know what was written past it.
type sender interface{ Sent(n int, err error) }

// Copy passes the bytes of src on to dst until src ends, which is a nil error. It
// owns no buffer while nothing comes. Between two sockets the kernel moves the
// bytes; connections that only count are told how many. A record of TLS is passed
// on as one piece.
func Copy(dst, src net.Conn) error {
	var in Reader
	in.Reset(src)
	if in.head == 0 {
		in.begun = true // nothing has been read ahead: wait before borrowing
	}
	if err := spliced(dst, src, &in); !errors.Is(err, errNoSplice) {
		return err
	}
	defer in.Release()
	for {
		if err := in.Fill(Size); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		for len(in.Bytes()) > 0 {
			n := min(len(in.Bytes()), 16<<10) // what a record of TLS may have
			if _, err := dst.Write(in.Bytes()[:n]); err != nil {
				return err
			}
			in.Take(n)
		}
	}
}

// spliced copies between sockets, what was read ahead first.
func spliced(dst, src net.Conn, in *Reader) error {
	from, readers, ok := socketBelow(src)
	if !ok {
		return errNoSplice
	}
	to, writers, ok := socketBelow(dst)
	if !ok {
		return errNoSplice
	}
	for ; in.head > 0; in.head = ahead(src) {
		err := in.plain()
		if err != nil {
			return err
		}
		_, err = dst.Write(in.Bytes())
		in.Release()
		if err != nil {
			return err
		}
	}
	err := splice(to, from,
		func(n int) {
			for _, c := range readers {
				c.(counted).Passed(n, nil)
			}
		}, func(n int) {
			for _, c := range writers {
				c.(sender).Sent(n, nil)
			}
		})
	if err == nil || errors.Is(err, errNoSplice) {
		return err
	}
	op, _ := errors.AsType[*net.OpError](err)
	for _, c := range readers {
		if op != nil && op.Op == "read" {
			c.(counted).Passed(0, err)
		}
	}
	for _, c := range writers {
		if op != nil && op.Op == "write" {
			c.(sender).Sent(0, err)
		}
	}
	return err
}

// socketBelow is the socket of a connection that others only look at, and those
// that want to be told.
func socketBelow(c net.Conn) (*net.TCPConn, []any, bool) {
	var told []any
	for {
		switch below := c.(type) {
		case *net.TCPConn:
			return below, told, true
		case *tls.Conn:
			return nil, nil, false
		case under:
			_, counts := c.(counted)
			_, sends := c.(sender)
			if counts && sends {
				told = append(told, c)
			} else if counts || sends {
				return nil, nil, false // it would miss half of it
			}
			c = below.Under()
		default:
			return nil, nil, false
		}
	}
}

// ahead is how many bytes were read before, and come first.
func ahead(c net.Conn) int {
	n := 0
	for {
		if a, ok := c.(interface{ Ahead() int }); ok {
			n += a.Ahead()
		}
		switch below := c.(type) {
		case under:
			c = below.Under()
		case interface{ NetConn() net.Conn }:
			c = below.NetConn()
		default:
			return n
		}
	}
}
