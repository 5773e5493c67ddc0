package wire

import (
	"errors"
	"net"
	"syscall"
	"unsafe"

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
	n, err := peekAt(int(fd), r.one[:])
	r.quiet = n < 0 && (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR))
}

// quiet looks at the socket below whatever a connection is.
func quiet(c net.Conn) bool {
	for {
		switch below := c.(type) {
		case syscall.Conn:
			raw, err := below.SyscallConn()
			if err != nil {
				return false
			}
			r := Reader{raw: raw}
			return raw.Control(r.look) == nil && r.quiet
		case under:
			c = below.Under()
		case interface{ NetConn() net.Conn }:
			c = below.NetConn()
		default:
			return true // it cannot be asked
		}
	}
}

// peekAt is recv(2) without waiting and without taking. unix.Recvfrom would make
// memory for the address of the peer.
func peekAt(fd int, p []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0) //nolint:gosec // the kernel writes at most len(p) bytes, and nobody gives it none
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}
