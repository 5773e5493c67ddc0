package wire

import "net"

// A Below is the connection below a tls.Conn. It lets whoever reads records take
// what the tls.Conn still has without waiting for more, so that no buffer is held
// by a connection that waits.
type Below struct {
	net.Conn
	idle bool // do not wait
}

// NewBelow returns c to put a tls.Conn on.
func NewBelow(c net.Conn) *Below { return &Below{Conn: c} }

// Read is net.Conn's.
func (b *Below) Read(p []byte) (int, error) {
	if b.idle {
		return 0, errNothing
	}
	return b.Conn.Read(p)
}

// Under is the connection below.
func (b *Below) Under() net.Conn { return b.Conn }

// CloseWrite ends our direction, where the connection below can.
func (b *Below) CloseWrite() error {
	if half, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return b.Close()
}

// nothing is a timeout, which a tls.Conn takes for no reason to give up.
type nothing struct{}

func (nothing) Error() string   { return "nothing has come yet" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true }

var errNothing net.Error = nothing{}
