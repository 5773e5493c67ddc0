package outbound

import (
	"context"
	"net"
)

// serve carries one client connection to its end.
func (o *Outbound) serve(_ context.Context, c *net.TCPConn) {
	defer o.deps.Drain.Hold()()
	defer func() { _ = c.Close() }()
}
