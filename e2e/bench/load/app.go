package load

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Serve answers at the addresses, HTTP/1.1 and gRPC alike, until something fails
// that is no client's: one that says nonsense is hung up on. It takes the thread.
func Serve(addrs ...string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, err := newPoller()
	if err != nil {
		return err
	}
	defer p.close()
	listeners, conns := map[int]bool{}, map[int]*conn{}
	for _, addr := range addrs {
		fd, err := listen(addr)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		listeners[fd] = true
		if err := p.watch(unix.EPOLL_CTL_ADD, fd, false); err != nil {
			return err
		}
	}
	for {
		events, err := p.wait(time.Second)
		if err != nil {
			return err
		}
		for _, e := range events {
			fd := int(e.Fd)
			if listeners[fd] {
				c, err := accept(p, fd)
				if err != nil {
					return err
				}
				if c != nil {
					conns[c.fd] = c
				}
				continue
			}
			c := conns[fd]
			_, err := c.ready()
			if err == nil {
				err = c.flush(p)
			}
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
					slog.Warn("a client was hung up on", "error", err)
				}
				delete(conns, fd)
				_ = unix.Close(fd)
			}
		}
	}
}

func listen(addr string) (int, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return 0, fmt.Errorf("listening: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	}
	if err == nil {
		err = unix.Listen(fd, 1024)
	}
	if err != nil {
		_ = unix.Close(fd)
		return 0, fmt.Errorf("listening on %s: %w", addr, err)
	}
	return fd, nil
}

// accept returns none where the client has gone again.
func accept(p *poller, listener int) (*conn, error) {
	fd, _, err := unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ECONNABORTED), errors.Is(err, unix.EINTR):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("accepting: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		_ = unix.Close(fd)
		return nil, nil // the client has gone
	}
	return newConn(fd, &answerer{}), p.watch(unix.EPOLL_CTL_ADD, fd, false)
}
