package wire

import "net"

// A Below is the connection below a tls.Conn. It lets whoever reads records take
// what the tls.Conn still has without waiting for more, so that no buffer is held
// by a connection that waits.
type Below struct {
	net.Conn
	idle bool   // do not wait
	sock Socket // c's, where c is one but for what was read ahead
}

// NewBelow returns c to put a tls.Conn on.
func NewBelow(c net.Conn) *Below {
	b := &Below{Conn: c}
	b.sock.Reset(Passing(c))
	return b
}

// Passing is the connection below those that neither count nor change what is
// written: it may be written to in their stead.
func Passing(c net.Conn) net.Conn {
	for {
		at, ok := c.(under)
		_, counts := c.(sender)
		_, too := c.(counted)
		if !ok || counts || too {
			return c
		}
		c = at.Under()
	}
}

// Read is net.Conn's.
func (b *Below) Read(p []byte) (int, error) {
	if b.idle {
		return 0, errNothing
	}
	if b.sock.Open() && ahead(b.Conn) == 0 {
		return b.sock.Read(p)
	}
	return b.Conn.Read(p)
}

// Write is net.Conn's.
func (b *Below) Write(p []byte) (int, error) {
	if b.sock.Open() {
		return b.sock.Write(p)
	}
	return b.Conn.Write(p)
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
