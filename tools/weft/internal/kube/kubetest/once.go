package kubetest

import "net"

// Once is a listener that accepts one connection and is closed then: the far end
// of a port-forward, for a server of a test. A server that serves it returns at
// once, and the connection is served on.
func Once(conn net.Conn) net.Listener { return &once{conn: conn} }

type once struct{ conn net.Conn }

func (l *once) Accept() (net.Conn, error) {
	if l.conn == nil {
		return nil, net.ErrClosed
	}
	c := l.conn
	l.conn = nil
	return c, nil
}
func (l *once) Close() error   { return nil }
func (l *once) Addr() net.Addr { return &net.TCPAddr{} }
