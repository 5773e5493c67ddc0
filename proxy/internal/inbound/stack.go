package inbound

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// serve builds the servers and the stack behind them.
func (in *Inbound) serve() {
	in.toApp = net.Dialer{
		Timeout:         in.cfg.Inbound.ConnectTimeout,
		KeepAlive:       in.cfg.Inbound.ConnectKeepalive,
		FallbackDelay:   -1, // targets are addresses
		KeepAliveConfig: net.KeepAliveConfig{},
	}
	in.app1, in.app2 = in.transport(false), in.transport(true)
	in.queue1, in.queue2 = newHandoff(in.listener.Addr()), newHandoff(in.listener.Addr())
	stack := in.stack()
	in.http1, in.http2 = in.server(stack, false), in.server(stack, true)
}

// stack is what every inbound request passes, outermost first.
func (in *Inbound) stack() http.Handler {
	return in.limit(
		in.mesh(
			in.allow(
				in.filter(
					in.rate(
						in.tell(
							http.HandlerFunc(in.endpoint)))))))
}

// server speaks one version of HTTP on connections that are given to it. There
// are no timeouts that the application did not ask for.
func (in *Inbound) server(h http.Handler, v2 bool) *http.Server {
	cfg := in.cfg.Inbound.Server
	protocols := new(http.Protocols)
	if v2 {
		protocols.SetUnencryptedHTTP2(true)
	} else {
		protocols.SetHTTP1(true)
	}
	return &http.Server{ //nolint:gosec // a transparent proxy adds no timeout of its own (complaint E5)
		DisableGeneralOptionsHandler: true, // OPTIONS * is the application's to answer
		ConnState: func(c net.Conn, state http.ConnState) {
			if scanned := c.(*conn).scanned; scanned != nil && state == http.StateHijacked {
				scanned.Hijacked()
			}
		},
		Handler:        h,
		Protocols:      protocols,
		MaxHeaderBytes: int(cfg.MaxHeaderListSize), // 0 is the library's 1 MiB
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          int(cfg.MaxConcurrentStreams),
			MaxReadFrameSize:              int(cfg.MaxFrameSize),
			MaxReceiveBufferPerConnection: int(cfg.Windows.Conn),
			MaxReceiveBufferPerStream:     int(cfg.Windows.Stream),
			SendPingTimeout:               cfg.KeepaliveInterval,
			PingTimeout:                   cfg.KeepaliveTimeout,
		},
		ErrorLog: quiet(in.log),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, sessionKey{}, c.(*conn).session)
		},
	}
}

// transport speaks one version of HTTP with the application.
func (in *Inbound) transport(v2 bool) *http.Transport {
	protocols := new(http.Protocols)
	if v2 {
		protocols.SetUnencryptedHTTP2(true)
	} else {
		protocols.SetHTTP1(true)
	}
	idle := in.cfg.Inbound.PoolIdle
	if v2 {
		idle = 5 * time.Minute // streams share one connection; spec/proxy.md §5.8 sets no limit
	}
	return &http.Transport{
		DialContext:            in.dialApp,
		Protocols:              protocols,
		DisableCompression:     true, // bytes pass as they are
		MaxIdleConnsPerHost:    in.cfg.Inbound.MaxIdle,
		IdleConnTimeout:        idle,
		MaxResponseHeaderBytes: 1 << 20,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: int(in.cfg.HTTP2.Conn),
			MaxReceiveBufferPerStream:     int(in.cfg.HTTP2.Stream),
		},
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

type sessionKey struct{}

func sessionOf(r *http.Request) *session { return r.Context().Value(sessionKey{}).(*session) }
