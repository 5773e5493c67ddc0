package inbound

import (
	"net"
	"net/netip"
	"sync"

	"github.com/weftmesh/weft/proxy/internal/allow"
	"github.com/weftmesh/weft/proxy/internal/strict"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// A session is what is known of one client connection once its TLS, its target
// and its policy are.
type session struct {
	client allow.Client
	tls    tell.Labels
	target netip.AddrPort // of the application
	port   *port

	labels tell.Labels // direction, target and TLS
	counts sync.Map    // bindKey -> *counts, bounded by the policy's rules
}

func newSession(client allow.Client, tls tell.Labels, target netip.AddrPort, p *port) *session {
	labels := tell.Labels{{Name: "direction", Value: "inbound"}}
	return &session{
		client: client, tls: tls, target: target, port: p,
		labels: labels.And(tell.Target(target)).And(tls),
	}
}

// conn is a client connection on its way to an HTTP server: closing it lets the
// process end and the port's policy go.
type conn struct {
	net.Conn
	scanned *strict.Conn // HTTP/1 only
	session *session
	once    sync.Once
	done    func()
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.done)
	return err
}

func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// handoff gives connections to an http.Server, which knows only listeners.
type handoff struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	addr   net.Addr
}

func newHandoff(addr net.Addr) *handoff {
	return &handoff{conns: make(chan net.Conn), closed: make(chan struct{}), addr: addr}
}

// give hands a connection over, or closes it if the server is gone.
func (h *handoff) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		_ = c.Close()
	}
}

func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *handoff) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *handoff) Addr() net.Addr { return h.addr }
