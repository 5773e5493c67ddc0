// Package listen binds the ports that traffic comes to, with what the environment
// says of their sockets. Accepted sockets inherit it.
package listen

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/proxy/internal/config"
)

// TCP binds one address for a direction.
func TCP(ctx context.Context, addr netip.AddrPort, d config.Direction) (net.Listener, error) {
	lc := net.ListenConfig{KeepAlive: d.AcceptKeepalive}
	if d.AcceptUserTO > 0 {
		lc.Control = func(_, _ string, raw syscall.RawConn) error {
			return set(raw, func(fd int) error {
				return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(min(d.AcceptUserTO.Milliseconds(), math.MaxInt32)))
			})
		}
	}
	l, err := lc.Listen(ctx, "tcp", addr.String())
	if err != nil {
		return nil, err
	}
	if d.Backlog == 0 {
		return l, nil
	}
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err == nil { // a second listen changes the queue of the first
		err = set(raw, func(fd int) error { return unix.Listen(fd, int(min(d.Backlog, math.MaxInt32))) })
	}
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("setting the backlog: %w", err)
	}
	return l, nil
}

func set(raw syscall.RawConn, option func(fd int) error) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) { err = option(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}
