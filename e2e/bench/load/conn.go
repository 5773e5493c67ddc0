package load

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// talk is one side of a protocol. It sees bytes only.
type talk interface {
	// take works off what has come, as far as it is whole, and appends what is to be
	// sent. It returns how many bytes it took, and how many exchanges ended.
	take(in, out []byte) (used int, sent []byte, ended int, err error)
}

// conn is a socket that does not block, and what waits on both sides of it.
type conn struct {
	fd     int
	talk   talk
	in     []byte // of len n are not taken yet
	n      int
	out    []byte
	choked bool // waits for room
}

const inSize = 64 << 10 // some frames of 16 KiB

func newConn(fd int, t talk) *conn { return &conn{fd: fd, talk: t, in: make([]byte, inSize)} }

// dial connects, which may block: on loopback it does not for long.
func dial(addr string) (int, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return 0, fmt.Errorf("connecting: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err != nil {
		_ = unix.Close(fd)
		return 0, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	return fd, nil
}

// ready reads once and lets the talk have it. It returns how many exchanges ended;
// io.EOF when the other side has.
func (c *conn) ready() (ended int, err error) {
	n, no := call(unix.SYS_RECVFROM, c.fd, c.in[c.n:], 0)
	switch {
	case no == unix.EAGAIN:
		return 0, nil
	case no != 0:
		return 0, fmt.Errorf("reading: %w", no)
	case n == 0:
		return 0, io.EOF
	}
	c.n += n
	used, out, ended, err := c.talk.take(c.in[:c.n], c.out)
	c.out = out
	if err != nil {
		return ended, err
	}
	c.n = copy(c.in, c.in[used:c.n])
	if c.n == len(c.in) {
		return ended, errors.New("a message is too long for the load's buffer")
	}
	return ended, nil
}

// flush writes what waits. What there is no room for is written when there is.
func (c *conn) flush(p *poller) error {
	for len(c.out) > 0 {
		n, no := call(unix.SYS_SENDTO, c.fd, c.out, unix.MSG_NOSIGNAL)
		if no == unix.EAGAIN {
			break
		}
		if no != 0 {
			return fmt.Errorf("writing: %w", no)
		}
		c.out = c.out[:copy(c.out, c.out[n:])]
	}
	if choked := len(c.out) > 0; choked != c.choked {
		c.choked = choked
		return p.watch(unix.EPOLL_CTL_MOD, c.fd, choked)
	}
	return nil
}

// call is a call of the kernel that cannot block, on bytes that are not none.
func call(trap uintptr, fd int, b []byte, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, no := syscall.RawSyscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), flags, 0, 0) //nolint:gosec // the kernel looks at len(b) bytes
		switch no {
		case 0:
			return int(n), 0
		case unix.EINTR:
			continue
		}
		return 0, no
	}
}
