package outbound

import (
	"context"
	"net"
	"net/netip"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/resolve"
)

// A Gateway carries on what the inbound side is asked for by name. Names are
// host:port (spec/proxy.md §11.2).
type Gateway struct{ o *Outbound }

// Gateway is the way from the inbound side to everything that this side can reach.
func (o *Outbound) Gateway() *Gateway { return &Gateway{o} }

// Known waits until it is known how to reach the name. It fails if nobody knows,
// or if ctx ends first.
func (g *Gateway) Known(ctx context.Context, name string) error {
	t, release, err := g.o.target(resolve.Target{Authority: name})
	if err != nil {
		return err
	}
	defer release()
	_, err = t.now(ctx)
	return err
}

// HTTP answers a request for the name, whatever the protocol of its policy.
func (g *Gateway) HTTP(c message.Client, name string, from netip.AddrPort) {
	x := &client{addr: from, release: func() {}}
	t, release, err := g.o.target(resolve.Target{Authority: name})
	if err != nil {
		(&exchange{Client: c, o: g.o, r: c.Request(), client: x, grpc: c.Request().GRPC()}).fail(err)
		return
	}
	defer release()
	x.target = t
	g.o.handle(c, x)
}

// TCP carries a connection to the name until both have ended. It owns conn.
func (g *Gateway) TCP(conn net.Conn, name string) error {
	to := resolve.Target{Authority: name}
	t, release, err := g.o.target(to)
	if err != nil {
		_ = conn.Close()
		return err
	}
	defer release()
	s, err := t.now(g.o.life)
	if err != nil {
		_ = conn.Close()
		return err
	}
	g.o.opaque(conn, to, s)
	return nil
}
