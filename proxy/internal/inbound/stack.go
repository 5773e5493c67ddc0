package inbound

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/weftmesh/weft/proxy/internal/door"
	"github.com/weftmesh/weft/proxy/internal/h1"
	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/span"
)

// serve builds what serves clients and the stack behind it.
func (in *Inbound) serve() {
	in.toApp = net.Dialer{
		Timeout:         in.cfg.Inbound.ConnectTimeout,
		KeepAlive:       in.cfg.Inbound.ConnectKeepalive,
		FallbackDelay:   -1, // targets are addresses
		KeepAliveConfig: net.KeepAliveConfig{},
	}
	in.door = in.newDoor()
	in.stack, in.named = in.layers(), in.gatewayLayers()
}

// A handler answers a request, or passes it on to the next.
type handler func(*exchange)

// layers are what every inbound request passes, outermost first. Those that
// nobody has asked for are not there at all.
func (in *Inbound) layers() handler {
	return in.access(
		in.trace(span.Server,
			in.limit(
				in.mesh(
					in.allow(
						in.filter(
							in.rate(
								in.tell(
									in.profile(
										in.tap(
											in.trace(span.Client,
												in.asked(
													in.endpoint))))))))))))
}

// gatewayLayers are what a request passes that asks this gateway for a name. What
// follows is the outbound side's.
func (in *Inbound) gatewayLayers() handler {
	return in.access(
		in.trace(span.Server,
			in.limit(
				in.mesh(
					in.allow(
						in.filter(
							in.rate(
								in.asked(
									in.gateway))))))))
}

// newDoor serves HTTP. There are no timeouts that the application did not ask for
// (complaint E5).
func (in *Inbound) newDoor() *door.Door {
	cfg := in.cfg.Inbound.Server
	head := cfg.MaxHeaderListSize
	if head == 0 {
		head = maxHead
	}
	return door.New(door.Config{
		HTTP2: h2.Config{
			StreamWindow: cfg.Windows.Stream, ConnWindow: cfg.Windows.Conn,
			MaxFrame: cfg.MaxFrameSize, MaxStreams: cfg.MaxConcurrentStreams, MaxList: head,
			KeepaliveInterval: cfg.KeepaliveInterval, KeepaliveTimeout: cfg.KeepaliveTimeout,
			MaxAge: cmp.Or(cfg.MaxConnectionAge, maxAge), Idle: idleAfter,
		},
		MaxHead: int(head), Log: in.log,
	})
}

// maxAge is when a client of HTTP/2 is told to make another connection, unless the
// configuration says; what is under way ends first. Peers' proxies keep one for as long as they can.
const maxAge = time.Hour

// idleAfter is when a client of HTTP/2 that asks for nothing is told so, too. Weft's
// own outbound side leaves sooner; linkerd2-proxy stays for ever (complaint F18).
const idleAfter = 10 * time.Minute

// maxHead bounds heads in bytes, either way.
const maxHead = 1 << 20

// A workload is the application's end of a port: its idle HTTP/1 connections, and its
// HTTP/2 connection.
type workload struct {
	http1 h1.Pool
	http2 h2.Line
}

// maxApps bounds the targets whose connections are kept.
const maxApps = 2048

// workloadOf returns the connections to a target.
func (in *Inbound) workloadOf(target netip.AddrPort) *workload {
	in.mu.Lock()
	defer in.mu.Unlock()
	a := in.apps[target]
	if a != nil {
		return a
	}
	told := in.toldOf(target)
	dial := func(ctx context.Context) (net.Conn, error) {
		c, err := in.dialApp(ctx, "tcp", target.String())
		if err != nil {
			return nil, err
		}
		return told.Wrap(c), nil
	}
	a = &workload{
		http1: h1.Pool{Dial: dial, MaxIdle: in.cfg.Inbound.MaxIdle, Idle: in.cfg.Inbound.PoolIdle, MaxHead: maxHead},
		http2: h2.Line{Open: func(ctx context.Context) (*h2.Conn, error) {
			c, err := dial(ctx)
			if err != nil {
				return nil, err
			}
			// Streams share one connection; spec/proxy.md §5.8 sets no limit to how long.
			return h2.Client(c, h2.Config{
				StreamWindow: in.cfg.HTTP2.Stream, ConnWindow: in.cfg.HTTP2.Conn, MaxList: maxHead, Idle: 5 * time.Minute,
			}), nil
		}},
	}
	if len(in.apps) >= maxApps { // somebody scans ports: forget one, its sessions go on with it
		for other := range in.apps {
			delete(in.apps, other)
			break
		}
	}
	in.apps[target] = a
	return a
}

// closeApps closes what is idle.
func (in *Inbound) closeApps() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, a := range in.apps {
		a.http1.Close()
		a.http2.Close()
	}
}

// connectPatience is how long dialApp goes on trying when time runs out.
const connectPatience = time.Second

// dialApp tries again if time ran out. Connecting to a neighbour takes no time:
// either this process was too busy to notice that it was done, as with hundreds
// of handshakes at once, or the application's queue was full for a moment.
func (in *Inbound) dialApp(ctx context.Context, network, addr string) (net.Conn, error) {
	began := time.Now()
	c, err := in.toApp.DialContext(ctx, network, addr)
	var late net.Error
	for errors.As(err, &late) && late.Timeout() && ctx.Err() == nil && time.Since(began) < connectPatience {
		c, err = in.toApp.DialContext(ctx, network, addr)
	}
	if err != nil {
		return nil, err
	}
	if t := in.cfg.Inbound.ConnectUserTO; t > 0 {
		setUserTimeout(c.(*net.TCPConn), t)
	}
	return c, nil
}
