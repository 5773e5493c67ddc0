package outbound

import (
	"net"

	"github.com/weftmesh/weft/proxy/internal/detect"
	"github.com/weftmesh/weft/proxy/internal/resolve"
)

// named carries a TLS connection to where the name in its handshake leads, without
// opening it (spec/proxy.md §5.6). It owns the connection.
func (o *Outbound) named(conn net.Conn, to resolve.Target, s *stack) {
	hello, replayed, err := detect.TLS(o.life, conn, o.detectTimeout())
	if err == nil && hello.SNI == "" {
		err = errNoSNI
	}
	if err != nil {
		o.drop(conn, to, err)
		return
	}
	at := resolve.SelectTLS(s.policy.TLS, hello.SNI)
	if at < 0 {
		o.drop(replayed, to, errNoRoute)
		return
	}
	route := &s.policy.TLS[at]
	o.carry(replayed, to, s.policy.Parent, way{split: s.tls[at], told: s.named[at](), use: forTLS, closes: route.Closes})
}
