package strict

import (
	"net"
	"sync/atomic"
)

// A Conn is a client's connection whose requests are scanned as they are read.
type Conn struct {
	net.Conn
	scan Scanner
	held []byte // read, but not scanned: it may not be HTTP
	err  error
	raw  atomic.Bool
}

// Wrap scans what comes on c.
func Wrap(c net.Conn) *Conn { return &Conn{Conn: c} }

// Hijacked ends the scanning: what follows is not HTTP/1, or somebody else's.
func (c *Conn) Hijacked() { c.raw.Store(true) }

// CloseWrite ends our direction only, where the connection below can.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// Read is for one reader at a time, as net/http's is.
func (c *Conn) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.more(p)
	if c.raw.Load() || n == 0 {
		return n, err
	}
	pass, wrong := c.scan.Scan(p[:n])
	if wrong != nil {
		c.err = wrong
		return 0, wrong
	}
	if pass < n {
		// In front of what is held already, which is what did not fit into p.
		c.held = append(append(make([]byte, 0, n-pass+len(c.held)), p[pass:n]...), c.held...)
	}
	return pass, err
}

func (c *Conn) more(p []byte) (int, error) {
	if len(c.held) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.held)
	if c.held = c.held[n:]; len(c.held) == 0 {
		c.held = nil
	}
	return n, nil
}
