// Package endpoint speaks to one endpoint: it connects, proves and checks
// identities, and carries requests or bytes there in the way the endpoint's proxy
// prefers (spec/proxy.md §8).
//
// An endpoint that discovery gave an identity is spoken to over mTLS with that
// identity or not at all: no byte is sent to a peer that could not prove it.
package endpoint

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/h1"
	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// TLS makes the client side of mTLS.
type TLS interface {
	ClientTLS(id, sni string, alpn ...string) *tls.Config
}

// Reach is told how connecting goes.
type Reach interface {
	Up()
	Down()
}

// Deps are what all endpoints share.
type Deps struct {
	TLS     TLS
	Metrics *tell.Metrics
	Config  config.Direction
	HTTP2   config.Windows
	Local   []netip.Addr // the pod's own: spoken to in plaintext, past no other proxy
	// Refuse says why an address must not be connected to; nil error is fine.
	Refuse func(netip.AddrPort) error
	// Dial makes a TCP connection; nil is a net.Dialer with the keepalive of Config.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// An Endpoint is the client of one endpoint. It connects when it is first used.
type Endpoint struct {
	resolve.Endpoint
	deps  *Deps
	reach Reach
	local bool

	tcp    *tell.TCP
	labels tell.Labels

	h1 h1.Pool
	h2 h2.Line

	last atomic.Pointer[told] // that was made last: mostly there is one
	mu   sync.Mutex
	http map[string]*tell.HTTP // by authority
}

// told counts the requests for an authority.
type told struct {
	authority string
	http      *tell.HTTP
}

// maxAuthorities bounds the metric handles an endpoint keeps: clients make up
// authorities.
const maxAuthorities = 64

// New returns the client of an endpoint; it does not connect yet.
func New(e resolve.Endpoint, deps *Deps, reach Reach) *Endpoint {
	ep := &Endpoint{Endpoint: e, deps: deps, reach: reach, local: slices.Contains(deps.Local, e.Addr.Addr()), http: map[string]*tell.HTTP{}}
	ep.labels = tell.Labels{{Name: "direction", Value: "outbound"}}.And(tell.Target(e.Addr)).And(ep.tlsLabels()).And(tell.Dst(e.Labels))
	ep.tcp = deps.Metrics.TCP(ep.labels.With("peer", "dst")).Cost(e.Labels["zone_locality"])
	ep.h1 = h1.Pool{
		Dial:    func(ctx context.Context) (net.Conn, error) { return ep.dial(ctx, sessionHTTP1) },
		MaxIdle: deps.Config.MaxIdle, Idle: deps.Config.PoolIdle, MaxHead: maxHeader,
	}
	ep.h2.Open = ep.openHTTP2
	return ep
}

// maxHeader bounds a response's head, in bytes.
const maxHeader = 256 << 10

// idleHTTP2 is how long a connection to a peer may have no requests. Linkerd has no
// such limit, and keeps what its peers once needed (complaint F18). maxAge is how
// long it lives: what is under way on it then ends first.
const (
	idleHTTP2 = 5 * time.Minute
	maxAge    = time.Hour
)

// openHTTP2 makes the connection that all HTTP/2 requests share.
func (e *Endpoint) openHTTP2(ctx context.Context) (*h2.Conn, error) {
	w := e.deps.HTTP2
	if e.HTTP2.StreamWindow > 0 {
		w = config.Windows{Stream: e.HTTP2.StreamWindow, Conn: e.HTTP2.ConnWindow}
	}
	conn, err := e.dial(ctx, sessionHTTP2)
	if err != nil {
		return nil, err
	}
	return h2.Client(conn, h2.Config{
		StreamWindow: w.Stream, ConnWindow: w.Conn, MaxList: maxHeader,
		KeepaliveInterval: e.HTTP2.KeepaliveInterval, KeepaliveTimeout: e.HTTP2.KeepaliveTimeout,
		Idle: idleHTTP2, MaxAge: maxAge,
	}), nil
}

// Meshed reports whether the peer proves an identity.
func (e *Endpoint) Meshed() bool { return e.Identity != "" && !e.local }

// tlsLabels say how the endpoint is spoken to, and why not over TLS.
func (e *Endpoint) tlsLabels() tell.Labels {
	switch {
	case e.local:
		return tell.NoTLS(tell.Loopback)
	case e.Identity != "":
		return tell.ServerTLS(e.Identity)
	}
	return tell.NoTLS(tell.NotProvided)
}

// Tell is the handle that counts requests for an authority.
func (e *Endpoint) Tell(authority string) *tell.HTTP {
	if last := e.last.Load(); last != nil && last.authority == authority {
		return last.http
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.http[authority]
	if h == nil {
		if len(e.http) >= maxAuthorities {
			clear(e.http)
		}
		authority = strings.Clone(authority) // it is borrowed for the time of the request
		h = e.deps.Metrics.HTTP(e.labels.With("authority", authority))
		e.http[authority] = h
		e.last.Store(&told{authority, h})
	}
	return h
}

// Close takes no new work. Requests in flight end by themselves; tunnels and
// opaque connections belong to their clients.
func (e *Endpoint) Close() {
	e.h1.Close()
	e.h2.Close()
}

// Dial opens a connection for bytes that are not HTTP.
func (e *Endpoint) Dial(ctx context.Context) (net.Conn, error) { return e.dial(ctx, sessionNone) }

// connectTimeout is what connecting and the handshake may take together.
func (d *Deps) connectTimeout() time.Duration {
	if d.Config.ConnectTimeout > 0 {
		return d.Config.ConnectTimeout
	}
	return time.Second
}
