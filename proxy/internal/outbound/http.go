package outbound

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/explicit"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/strict"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// client is the connection that a request came on.
type client struct {
	target   *target // nil if each request says where it goes
	addr     netip.AddrPort
	explicit bool // it speaks to the proxy on purpose
	release  func()
}

// handed is a connection on its way to the HTTP server.
type handed struct {
	*strict.Conn
	client *client
	once   sync.Once
}

func (h *handed) done() { h.once.Do(h.client.release) }

// queue is the listener of the HTTP server: connections come from serve, once it
// is known that they are HTTP.
type queue struct {
	conns chan net.Conn
	stop  chan struct{}
	once  sync.Once
	addr  net.Addr
}

func newQueue(addr net.Addr) *queue {
	return &queue{conns: make(chan net.Conn), stop: make(chan struct{}), addr: addr}
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.stop:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error {
	q.once.Do(func() { close(q.stop) })
	return nil
}

func (q *queue) Addr() net.Addr { return q.addr }

// hand gives a connection to the HTTP server, which closes it when it is done.
func (o *Outbound) hand(conn net.Conn, c *client) {
	h := &handed{Conn: strict.Wrap(conn), client: c}
	select {
	case o.queue.conns <- h:
	case <-o.queue.stop:
		_ = conn.Close()
		h.done()
	}
}

// newServer is net/http's server as a transparent proxy needs it: it adds no
// timeout and no header that the application did not ask for.
func (o *Outbound) newServer(cfg config.Config) *http.Server {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	s := cfg.Outbound.Server
	windows := s.Windows
	if windows.Conn == 0 {
		windows = cfg.HTTP2
	}
	return &http.Server{ //nolint:gosec // a transparent proxy adds no timeout of its own (complaint E5)
		Handler:                      http.HandlerFunc(o.handle),
		Protocols:                    p,
		DisableGeneralOptionsHandler: true,
		MaxHeaderBytes:               256 << 10,
		ErrorLog:                     slog.NewLogLogger(o.log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, clientKey{}, c.(*handed).client)
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateHijacked {
				c.(*handed).Hijacked()
			}
			if state == http.StateClosed || state == http.StateHijacked {
				c.(*handed).done()
			}
		},
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          int(s.MaxConcurrentStreams),
			MaxReadFrameSize:              int(s.MaxFrameSize),
			MaxReceiveBufferPerConnection: int(windows.Conn), MaxReceiveBufferPerStream: int(windows.Stream),
			SendPingTimeout: s.KeepaliveInterval, PingTimeout: s.KeepaliveTimeout,
		},
	}
}

type clientKey struct{}

// exchange is one request of a client.
type exchange struct {
	o         *Outbound
	w         http.ResponseWriter
	r         *http.Request
	client    *client
	stack     *stack
	rule      *rule
	authority string
	grpc      bool
	body      *replay // nil if there is none
	pool      *pool   // of the last attempt
	began     time.Time
}

// handle carries one request.
func (o *Outbound) handle(w http.ResponseWriter, r *http.Request) {
	c, _ := r.Context().Value(clientKey{}).(*client)
	if c == nil { // an HTTP/2 request lost its connection's context: cannot be served safely
		faultOf(errInvalid).write(w, r, true)
		return
	}
	x := &exchange{o: o, w: w, r: r, client: c, began: time.Now(), grpc: isGRPC(r)}
	if r.ProtoMajor == 1 {
		// A server may answer before it has the whole request, and we with it.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	t, release, err := x.target()
	if err != nil {
		x.fail(err)
		return
	}
	defer release()
	if c.explicit && r.Method == http.MethodConnect {
		x.connect(t)
		return
	}
	x.authority = r.Host
	if x.authority == "" {
		x.authority = t.to.String()
	}
	if x.stack, err = t.now(r.Context()); err != nil {
		x.fail(err)
		return
	}
	if err := x.serve(); err != nil {
		x.fail(err)
	}
}

// target is where the request goes: where its connection does, or where it says.
func (x *exchange) target() (*target, func(), error) {
	c, r := x.client, x.r
	if override := r.Header.Get("L5d-Dst-Override"); override != "" && x.o.deps.Config.Ingress {
		to, err := explicit.Authority(override, 80)
		if err != nil {
			return nil, nil, err
		}
		r.Header.Del("L5d-Dst-Override")
		return x.o.target(to)
	}
	if c.target != nil {
		return c.target, func() {}, nil
	}
	if r.Method == http.MethodConnect && r.ProtoMajor != 1 {
		return nil, nil, errConnect2
	}
	to, err := explicit.Request(r)
	if err != nil {
		return nil, nil, err
	}
	return x.o.target(to)
}

// serve routes the request and answers it, or returns why not.
func (x *exchange) serve() error {
	if x.stack.policy.Protocol == resolve.Invalid {
		return errInvalid
	}
	limit := int64(x.o.deps.Config.Outbound.MaxInFlight)
	defer x.stack.inflight.Add(-1)
	if n := x.stack.inflight.Add(1); limit > 0 && n > limit {
		return errLimit
	}
	routes := x.stack.http1
	if x.r.ProtoMajor == 2 {
		routes = x.stack.http2
	}
	_, found := resolve.Select(routes, hostOnly(x.authority), x.r)
	if found == nil {
		return errNoRoute
	}
	x.rule = x.stack.rules[found]
	return x.send()
}

// fail answers with an error, and counts it.
func (x *exchange) fail(err error) {
	if errors.Is(err, context.Canceled) && x.r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // nobody listens
	}
	f := faultOf(err)
	if f.label != "" {
		x.o.deps.Metrics.Counter(tell.OutboundHTTPErrors, tell.Labels{{Name: "error", Value: f.label}}).Inc()
	}
	if f.status >= 500 {
		x.o.log.Info("request failed", "method", x.r.Method, "authority", x.authority, "status", f.status, "client", x.client.addr.String(), "error", err)
	}
	if x.rule != nil {
		x.rule.tell.end(time.Since(x.began), 0, "", f.short)
	}
	f.write(x.w, x.r, !x.o.deps.Config.HideInformational)
}

// hostOnly is an authority without its port.
func hostOnly(authority string) string {
	if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexByte(authority, ']') {
		return authority[:i]
	}
	return authority
}
