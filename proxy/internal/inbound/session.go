package inbound

import (
	"net"
	"net/netip"
	"sync"

	"github.com/weftmesh/weft/proxy/internal/allow"
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
	http   sync.Map    // bindKey -> *tell.HTTP, bounded by the policy's rules
}

type bindKey struct{ server, route, authz allow.Ref }

func newSession(client allow.Client, tls tell.Labels, target netip.AddrPort, p *port) *session {
	labels := tell.Labels{{Name: "direction", Value: "inbound"}}
	return &session{
		client: client, tls: tls, target: target, port: p,
		labels: labels.And(tell.Target(target)).And(tls),
	}
}

// requests returns the counters of the requests that a verdict covers.
func (s *session) requests(m *tell.Metrics, v allow.Verdict) *tell.HTTP {
	key := bindKey{v.Server, v.Route, v.Authz}
	if h, ok := s.http.Load(key); ok {
		return h.(*tell.HTTP)
	}
	h := m.HTTP(s.labels.And(verdictLabels(v, s.target.Port())))
	s.http.Store(key, h)
	return h
}

// verdictLabels say which policy decided.
func verdictLabels(v allow.Verdict, port uint16) tell.Labels {
	l := tell.Labels{
		{Name: "srv_group", Value: v.Server.Group},
		{Name: "srv_kind", Value: v.Server.Kind},
		{Name: "srv_name", Value: v.Server.Name},
		{Name: "srv_port", Value: portText(port)},
	}
	if v.Route != (allow.Ref{}) {
		l = append(l, tell.Label{Name: "route_group", Value: v.Route.Group},
			tell.Label{Name: "route_kind", Value: v.Route.Kind},
			tell.Label{Name: "route_name", Value: v.Route.Name})
	}
	if v.Authz != (allow.Ref{}) {
		l = append(l, tell.Label{Name: "authz_group", Value: v.Authz.Group},
			tell.Label{Name: "authz_kind", Value: v.Authz.Kind},
			tell.Label{Name: "authz_name", Value: v.Authz.Name})
	}
	return l
}

// conn is a client connection on its way to an HTTP server: closing it lets the
// process end and the port's policy go.
type conn struct {
	net.Conn
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
