package wire

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Quiet reports whether nothing waits to be read on an idle connection: no bytes,
// which nobody has asked for, and no end. It does not wait.
func Quiet(c net.Conn) bool {
	for {
		switch below := c.(type) {
		case syscall.Conn:
			raw, err := below.SyscallConn()
			if err != nil {
				return false
			}
			quiet := false
			err = raw.Control(func(fd uintptr) {
				var b [1]byte
				_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
				quiet = errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
			})
			return err == nil && quiet
		case under:
			c = below.Under()
		case interface{ NetConn() net.Conn }:
			c = below.NetConn()
		default:
			return true // it cannot be asked
		}
	}
}
