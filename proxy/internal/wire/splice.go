package wire

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipeSize is how much the kernel moves from socket to socket at once, in bytes.
const pipeSize = 256 << 10

// A pipe is what splice(2) needs between two sockets. It is taken when there is
// something to move and given back when nothing is in it, so that a connection
// that is idle holds none.
type pipe struct{ r, w int }

// maxPipes bounds the pipes that are kept for the next who needs one.
const maxPipes = 32

var pipes struct {
	mu    sync.Mutex
	spare []pipe
}

func takePipe() (pipe, error) {
	pipes.mu.Lock()
	if n := len(pipes.spare); n > 0 {
		p := pipes.spare[n-1]
		pipes.spare = pipes.spare[:n-1]
		pipes.mu.Unlock()
		return p, nil
	}
	pipes.mu.Unlock()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return pipe{}, err
	}
	// A user has a limit to such memory; the pipe is good without it.
	_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, pipeSize)
	return pipe{fds[0], fds[1]}, nil
}

// give keeps an empty pipe.
func (p pipe) give() {
	pipes.mu.Lock()
	if len(pipes.spare) < maxPipes {
		pipes.spare = append(pipes.spare, p)
		pipes.mu.Unlock()
		return
	}
	pipes.mu.Unlock()
	p.close()
}

func (p pipe) close() {
	_ = unix.Close(p.r)
	_ = unix.Close(p.w)
}

// errNoSplice means that nothing has been moved and must be copied instead.
var errNoSplice = errors.New("the kernel does not splice these")

// mover moves bytes from socket to socket without looking at them.
type mover struct {
	p    pipe
	held bool // p is ours
	n    int  // of the last step
	err  error
	left int // in the pipe
}

// splice moves until the end of src, which is a nil error. passed and sent are
// told how much.
func splice(dst, src *net.TCPConn, passed, sent func(int)) error {
	from, err := src.SyscallConn()
	if err != nil {
		return err
	}
	to, err := dst.SyscallConn()
	if err != nil {
		return err
	}
	m := new(mover)
	defer m.drop()
	fill, drain := m.fill, m.drain
	for first := true; ; first = false {
		if err := m.step(from.Read, fill); err != nil {
			if first && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)) {
				return errNoSplice
			}
			return &net.OpError{Op: "read", Net: "tcp", Source: src.LocalAddr(), Addr: src.RemoteAddr(), Err: err}
		}
		if m.n == 0 {
			return nil
		}
		passed(m.n)
		for m.left = m.n; m.left > 0; m.left -= m.n {
			if err := m.step(to.Write, drain); err != nil {
				return &net.OpError{Op: "write", Net: "tcp", Source: dst.LocalAddr(), Addr: dst.RemoteAddr(), Err: err}
			}
			if m.n == 0 {
				return io.ErrUnexpectedEOF
			}
			sent(m.n)
		}
	}
}

func (m *mover) step(wait func(func(uintptr) bool) error, do func(uintptr) bool) error {
	m.n, m.err = 0, nil
	if err := wait(do); err != nil {
		return err
	}
	return m.err
}

func (m *mover) fill(fd uintptr) bool {
	if !m.held {
		if m.p, m.err = takePipe(); m.err != nil {
			return true
		}
		m.held = true
	}
	return m.move(int(fd), m.p.w, pipeSize)
}

func (m *mover) drain(fd uintptr) bool { return m.move(m.p.r, int(fd), m.left) }

func (m *mover) move(from, to, most int) bool {
	for {
		n, err := unix.Splice(from, nil, to, nil, most, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			if m.left == 0 {
				m.p.give() // nothing to read: hold nothing while waiting
				m.held = false
			}
			return false
		}
		m.n, m.err = int(max(n, 0)), err
		return true
	}
}

// drop gives the pipe back; one with something in it is of no use to others.
func (m *mover) drop() {
	switch {
	case !m.held:
	case m.left > 0:
		m.p.close()
	default:
		m.p.give()
	}
}
