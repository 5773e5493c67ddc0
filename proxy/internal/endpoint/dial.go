package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/proxy/internal/header"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

const (
	sessionNone  = header.None
	sessionHTTP1 = header.HTTP1
	sessionHTTP2 = header.HTTP2
)

// A DialError means that no connection could be made, so that nothing was sent
// and the endpoint may be left alone for a while.
type DialError struct {
	Addr     netip.AddrPort
	Err      error
	Timeout  bool // it took too long
	Identity bool // the peer did not prove what it must
	Refused  bool // we refused to connect
}

func (e *DialError) Error() string { return fmt.Sprintf("connecting to %s: %v", e.Addr, e.Err) }

func (e *DialError) Unwrap() error { return e.Err }

// dial connects, and tells the balancer how that went. A caller that gives up
// does not count against the endpoint.
func (e *Endpoint) dial(ctx context.Context, session header.Session) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.deps.connectTimeout(), errConnectTimeout)
	defer cancel()
	conn, err := e.connect(ctx, session)
	switch {
	case err == nil:
		e.reach.Up()
		return e.tcp.Wrap(conn), nil
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), errConnectTimeout):
		return nil, context.Cause(ctx)
	}
	dialErr := &DialError{Addr: e.Addr, Err: err}
	if asked, ok := errors.AsType[*DialError](err); ok {
		dialErr = asked
	}
	if !dialErr.Refused {
		dialErr.Timeout = ctx.Err() != nil
		e.reach.Down()
	}
	return nil, dialErr
}

var errConnectTimeout = errors.New("connect timed out")

// connect makes a connection over which the first byte may be sent.
func (e *Endpoint) connect(ctx context.Context, session header.Session) (net.Conn, error) {
	addr := e.Addr
	meshed := e.Meshed()
	framed := meshed && (e.InboundPort != 0 || e.Override != "")
	if meshed && e.InboundPort != 0 {
		addr = netip.AddrPortFrom(addr.Addr(), e.InboundPort)
	}
	if e.deps.Refuse != nil {
		if err := e.deps.Refuse(addr); err != nil {
			return nil, &DialError{Addr: addr, Err: err, Refused: true}
		}
	}
	conn, err := e.deps.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	if !meshed {
		return conn, nil
	}
	var alpn []string
	if framed {
		alpn = []string{header.ALPN}
	}
	secure, err := e.handshake(ctx, conn, alpn)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if framed && secure.ConnectionState().NegotiatedProtocol == header.ALPN {
		if err := e.announce(ctx, secure, session); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return secure, nil
}

// handshake fails closed: without a configuration that names the peer there is
// no connection.
func (e *Endpoint) handshake(ctx context.Context, conn net.Conn, alpn []string) (*tls.Conn, error) {
	cfg := e.deps.TLS.ClientTLS(e.Identity, e.ServerName, alpn...)
	if cfg == nil {
		return nil, &DialError{Addr: e.Addr, Err: errors.New("the proxy has no TLS configuration"), Identity: true}
	}
	secure := tls.Client(wire.NewBelow(conn), cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, &DialError{Addr: e.Addr, Err: fmt.Errorf("proving %s: %w", e.Identity, err), Identity: !broken(err)}
	}
	return secure, nil
}

// broken reports whether the connection failed, rather than the peer's proof.
func broken(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) && op.Op != "remote error" ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// announce writes the transport header.
func (e *Endpoint) announce(ctx context.Context, conn net.Conn, session header.Session) error {
	h := header.Header{Port: e.Addr.Port(), Session: session}
	if e.Hint == resolve.HintOpaque {
		h.Session = header.None
	}
	if e.Override != "" {
		host, port, err := net.SplitHostPort(e.Override)
		if err != nil {
			host = e.Override
		} else if n, err := strconv.ParseUint(port, 10, 16); err == nil && n > 0 {
			h.Port = uint16(n)
		}
		h.Name = host
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetWriteDeadline(deadline)
		defer func() { _ = conn.SetWriteDeadline(time.Time{}) }()
	}
	return header.Write(conn, h)
}

func (d *Deps) dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	if d.Dial != nil {
		return d.Dial(ctx, addr.String())
	}
	dialer := net.Dialer{KeepAlive: d.Config.ConnectKeepalive}
	if from, ok := d.source(addr.Addr()); ok {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		dialer.Control = bindLate
	}
	conn, err := dialer.DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return nil, err
	}
	if d.Config.ConnectUserTO > 0 {
		userTimeout(conn, d.Config.ConnectUserTO)
	}
	return conn, nil
}

// source is the address to connect from, where the kernel would choose another
// than the pod's: a workload of a demo whose own address is a loopback one would
// come from 127.0.0.1, like all others, and no policy could tell them apart.
// Everywhere else the kernel's choice is the pod's address.
func (d *Deps) source(to netip.Addr) (netip.Addr, bool) {
	if len(d.Local) == 0 || !d.Local[0].IsLoopback() || !to.IsLoopback() || d.Local[0].Is4() != to.Is4() {
		return netip.Addr{}, false
	}
	return d.Local[0], true
}

// bindLate leaves the port to connect, which may use one again for another peer;
// bind alone would run out of them (complaint F17).
func bindLate(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
}

// userTimeout bounds how long sent data may stay unacknowledged. A system
// without it goes on as before.
func userTimeout(conn net.Conn, d time.Duration) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
}
