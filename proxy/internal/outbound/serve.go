package outbound

import (
	"net"
	"net/netip"
	"runtime/debug"
	"time"

	"github.com/weftmesh/weft/proxy/internal/detect"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/origdst"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// serve carries one client connection: to where it was going, or, if it was not
// redirected, to where its requests say.
func (o *Outbound) serve(conn *net.TCPConn) {
	hold := o.deps.Drain.Hold()
	defer o.survive(conn, hold)
	peer := addrOf(conn.RemoteAddr())
	dst, redirected := origdst.Of(conn)
	labels := tell.Labels{{Name: "direction", Value: "outbound"}, {Name: "peer", Value: "src"}}.And(tell.NoTLS(tell.Loopback))
	if redirected {
		labels = labels.And(tell.Target(dst))
	}
	counted := o.deps.Metrics.TCP(labels).Wrap(conn)
	if redirected {
		o.stream(counted, resolve.Target{Addr: dst}, peer, hold)
		return
	}
	o.hand(counted, &client{addr: peer, explicit: true, release: hold})
}

// survive keeps one connection's bug from ending all the others.
func (o *Outbound) survive(conn net.Conn, hold func()) {
	if cause := recover(); cause != nil {
		o.log.Error("a connection was given up", "client", conn.RemoteAddr().String(), "panic", cause, "stack", string(debug.Stack()))
		_ = conn.Close()
		hold()
	}
}

// stream carries a connection to a target, in the target's protocol. It owns the
// connection and the hold.
func (o *Outbound) stream(conn net.Conn, to resolve.Target, peer netip.AddrPort, hold func()) {
	t, release, err := o.target(to)
	if err != nil {
		o.drop(conn, to, err)
		hold()
		return
	}
	end := func() { release(); hold() }
	s, err := t.now(o.life)
	if err != nil {
		o.drop(conn, to, err)
		end()
		return
	}
	s.arrived.Inc()
	kind := detect.Opaque
	switch s.policy.Protocol {
	case resolve.HTTP1, resolve.HTTP2, resolve.GRPC:
		kind = detect.HTTP1
	case resolve.TLS:
		defer end()
		o.named(conn, to, s)
		return
	case resolve.Detect, resolve.Invalid:
		if kind, conn, err = o.detect(conn, s); err != nil {
			o.drop(conn, to, err)
			end()
			return
		}
	}
	if kind == detect.HTTP1 || kind == detect.HTTP2 {
		o.hand(conn, &client{target: t, addr: peer, release: end})
		return
	}
	defer end()
	o.opaque(conn, to, s)
}

func (o *Outbound) detect(conn net.Conn, s *stack) (detect.Kind, net.Conn, error) {
	began := time.Now()
	kind, replayed, err := detect.HTTP(o.life, conn, o.detectTimeout())
	result := kind.String()
	if err != nil {
		result, replayed = "error", conn
	}
	s.detected.Found(result, time.Since(began))
	return kind, replayed, err
}

func (o *Outbound) detectTimeout() time.Duration {
	if d := o.deps.Config.Outbound.DetectTimeout; d > 0 {
		return d
	}
	return 10 * time.Second
}

// drop closes a connection that cannot be carried.
func (o *Outbound) drop(conn net.Conn, to resolve.Target, err error) {
	_ = conn.Close()
	if o.life.Err() != nil {
		return
	}
	f := faultOf(err)
	labels := tell.Labels{{Name: "error", Value: f.label}}
	if to.Addr.IsValid() {
		labels = labels.And(tell.Target(to.Addr))
	}
	o.deps.Metrics.Counter(tell.OutboundTCPErrors, labels).Inc()
	o.log.Info("connection failed", "target", to.String(), "error", err)
}

// connect answers a CONNECT and carries what follows to its target.
func (x *exchange) connect(t *target) {
	if _, err := t.now(x.Context()); err != nil {
		x.fail(err)
		return
	}
	hold := x.o.deps.Drain.Hold()
	conn, err := x.tunnel(&message.Response{Version: message.HTTP11, Status: 200})
	if err != nil {
		hold()
		x.Break(err)
		return
	}
	x.o.stream(conn, t.to, x.client.addr, hold)
}

func addrOf(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		ap := tcp.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}
