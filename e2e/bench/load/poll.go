// Package load is both ends of a benchmark: clients that ask, and the application
// that answers. Each is one loop on one thread over sockets that do not block, and
// does little else than what the wire demands, for a proxy is only as busy as the
// two let it be: net/http at both ends takes more of a processor than what is measured.
package load

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller waits for many sockets at once.
type poller struct {
	fd     int
	events [256]unix.EpollEvent
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	return &poller{fd: fd}, nil
}

func (p *poller) close() { _ = unix.Close(p.fd) }

// watch waits for something to read, or for room to write as well.
func (p *poller) watch(op, fd int, room bool) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if room {
		event.Events |= unix.EPOLLOUT
	}
	if err := unix.EpollCtl(p.fd, op, fd, &event); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// wait returns what is ready. It holds the thread, and so the processor, which are
// the loop's own: the runtime would give them to another and take time to get them back.
func (p *poller) wait(most time.Duration) ([]unix.EpollEvent, error) {
	n, _, no := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])), //nolint:gosec // the kernel fills as many as there is room for
		uintptr(len(p.events)), uintptr(max(most.Milliseconds(), 0)), 0, 0)
	if no != 0 && no != unix.EINTR {
		return nil, fmt.Errorf("epoll_pwait: %w", no)
	}
	if no != 0 {
		n = 0
	}
	return p.events[:n], nil
}

// An alarm is readable at a time, to the nanosecond: a poller's own patience is in
// milliseconds.
type alarm struct{ fd int }

func newAlarm() (alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return alarm{}, fmt.Errorf("timerfd_create: %w", err)
	}
	return alarm{fd}, nil
}

// set lets it ring after d, and not before.
func (a alarm) set(d time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(d), 1))}
	if err := unix.TimerfdSettime(a.fd, 0, &spec, nil); err != nil {
		return fmt.Errorf("timerfd_settime: %w", err)
	}
	return nil
}

// quiet takes what it has rung.
func (a alarm) quiet() {
	var count [8]byte
	_, _ = unix.Read(a.fd, count[:]) // it may have been set again meanwhile
}
