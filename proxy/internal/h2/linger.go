package h2

import (
	"time"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

// slowest is how long a peer may take to read anything of what is still on its way to
// it when we have no more to say, as nginx's lingering_timeout.
const slowest = 5 * time.Second

// part has a server's connection stay until the peer has all that was said to it. It is
// called with the lock held, before the connection is ended.
func (c *Conn) part() {
	if c.server {
		c.parting = true
		if c.lastSent == frame.MaxWindow { // the peer has left: it begins no more
			c.lastSent = c.highest
		}
	}
}

// hangUp closes the connection that has ended and has been written to for the last
// time. A peer that we part from is read on meanwhile, for what it sends to a closed
// connection resets that: it speaks of windows and PINGs while it reads.
func (c *Conn) hangUp() {
	c.mu.Lock()
	parting, lingers := c.parting, c.lingers
	c.lingers = parting
	c.mu.Unlock()
	switch {
	case !parting:
		_ = c.nc.Close()
	case !lingers:
		go c.linger()
	}
}

func (c *Conn) linger() {
	defer c.survive()
	wire.Delivered(c.nc, slowest)
	_ = c.nc.Close()
}
