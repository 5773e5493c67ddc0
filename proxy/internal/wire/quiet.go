package wire

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Quiet reports whether nothing waits to be read on the connection, which is idle:
// no bytes, which nobody has asked for, and no end. It does not wait.
func (r *Reader) Quiet() bool {
	if len(r.Bytes()) > 0 {
		return false
	}
	if r.kind == socket {
		r.quiet = false
		return r.raw.Control(r.peek) == nil && r.quiet
	}
	return quiet(r.conn)
}

func (r *Reader) look(fd uintptr) {
	_, no := peekAt(fd, r.one[:])
	r.quiet = no == unix.EAGAIN
}

// quiet looks at the socket below whatever a connection is.
func quiet(c net.Conn) bool {
	raw, err := rawBelow(c)
	if raw == nil {
		return err == nil // it cannot be asked
	}
	r := Reader{raw: raw}
	return raw.Control(r.look) == nil && r.quiet
}

// rawBelow is the socket below whatever a connection is; nil without an error is one
// that has none.
func rawBelow(c net.Conn) (syscall.RawConn, error) {
	for {
		switch below := c.(type) {
		case syscall.Conn:
			return below.SyscallConn()
		case under:
			c = below.Under()
		case interface{ NetConn() net.Conn }:
			c = below.NetConn()
		default:
			return nil, nil //nolint:nilnil // no socket is no error
		}
	}
}

// peekAt is recv(2) into p, which is not empty, without waiting and without taking.
func peekAt(fd uintptr, p []byte) (int, syscall.Errno) {
	return call(unix.SYS_RECVFROM, fd, p, unix.MSG_PEEK|unix.MSG_DONTWAIT)
}
