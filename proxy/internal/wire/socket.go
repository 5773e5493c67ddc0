package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Socket reads and writes a TCP connection with calls of the kernel that the
// scheduler is not told of. They never wait, for the socket does not block; and to
// tell has a price: the runtime's watcher wakes up for it, and when the kernel
// happens to pause a thread in such a call, the watcher gives what that thread is
// busy with to another one. What a call does compute, such as the way to a peer on
// the same host, keeps the processor. The zero value has no socket.
type Socket struct {
	conn    net.Conn
	raw     syscall.RawConn
	in, out transfer
}

// transfer is one direction. Whoever moves bytes has its lock.
type transfer struct {
	mu   sync.Mutex
	p    []byte
	n    int           // of p, moved
	no   syscall.Errno // of the last try
	some func(uintptr) bool
}

// Reset makes it the socket of c, and reports whether c is one.
func (s *Socket) Reset(c net.Conn) bool {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	s.conn, s.raw = tcp, raw
	s.in.some, s.out.some = s.in.receive, s.out.send
	return true
}

// Open reports whether there is a socket.
func (s *Socket) Open() bool { return s.raw != nil }

// Read is net.Conn's.
func (s *Socket) Read(p []byte) (int, error) {
	n, err := s.in.move(p, s.raw.Read)
	switch {
	case err != nil:
		return n, s.because("read", err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write is net.Conn's.
func (s *Socket) Write(p []byte) (int, error) {
	n, err := s.out.move(p, s.raw.Write)
	if err != nil {
		return n, s.because("write", err)
	}
	return n, nil
}

// because is the error as the connection itself would have put it.
func (s *Socket) because(op string, err error) error {
	if raw, ok := errors.AsType[*net.OpError](err); ok {
		raw.Op = op
		return raw
	}
	return broken(s.conn, op, err)
}

// broken is an error of a socket as its connection would have put it.
func broken(c net.Conn, op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}

func (t *transfer) move(p []byte, ready func(func(uintptr) bool) error) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	t.mu.Lock()
	t.p, t.n, t.no = p, 0, 0
	err := ready(t.some)
	n, no := t.n, t.no
	t.p = nil
	t.mu.Unlock()
	if err == nil && no != 0 {
		err = no
	}
	return n, err
}

// receive and send report whether there is nothing to wait for.
func (t *transfer) receive(fd uintptr) bool {
	t.n, t.no = receive(fd, t.p)
	return t.no != unix.EAGAIN
}

func (t *transfer) send(fd uintptr) bool {
	for t.n < len(t.p) {
		n, no := send(fd, t.p[t.n:])
		if no != 0 {
			t.no = no
			return no != unix.EAGAIN
		}
		t.n += n
	}
	t.no = 0
	return true
}

// receive is recv(2) into p, which is not empty.
func receive(fd uintptr, p []byte) (int, syscall.Errno) {
	if poisoned { // the race detector takes what is sent and received for an order of events
		return result(syscall.Read(int(fd), p))
	}
	return call(unix.SYS_RECVFROM, fd, p, 0)
}

// send is send(2) of p, which is not empty.
func send(fd uintptr, p []byte) (int, syscall.Errno) {
	if poisoned {
		return result(syscall.Write(int(fd), p))
	}
	return call(unix.SYS_SENDTO, fd, p, unix.MSG_NOSIGNAL)
}

func call(trap, fd uintptr, p []byte, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, no := syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), flags, 0, 0) //nolint:gosec // the kernel looks at len(p) bytes, and nobody gives it none
		switch no {
		case 0:
			return int(n), 0
		case unix.EINTR:
			continue
		}
		return 0, no
	}
}

func result(n int, err error) (int, syscall.Errno) {
	no, _ := errors.AsType[syscall.Errno](err)
	return max(n, 0), no
}
