package endpoint

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/weftmesh/weft/proxy/internal/config"
)

// multiplex keeps the one HTTP/2 connection of an endpoint. All requests share
// it; while it is being made, they wait for the same attempt.
type multiplex struct {
	open func(context.Context) (*http.ClientConn, error)

	mu     sync.Mutex
	conn   *shared
	making *attempt
	closed bool
}

type attempt struct {
	done chan struct{}
	conn *shared
	err  error
}

// shared is a connection that is closed when it is retired and has nothing to do.
type shared struct {
	*http.ClientConn
	starting atomic.Int64 // requests between get and RoundTrip's return
	retired  atomic.Bool
}

// get returns a connection that takes a request; the caller calls started on it.
func (m *multiplex) get(ctx context.Context) (*shared, error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, errGone
	}
	if c := m.conn; c != nil && c.Err() == nil {
		defer m.mu.Unlock()
		c.starting.Add(1)
		return c, nil
	}
	a := m.making
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		m.making = a
		// On its own context: whoever asked first may leave, the others stay.
		go m.make(context.WithoutCancel(ctx), a)
	}
	m.mu.Unlock()
	select {
	case <-a.done:
		if a.err != nil {
			return nil, a.err
		}
		a.conn.starting.Add(1)
		return a.conn, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (m *multiplex) make(ctx context.Context, a *attempt) {
	conn, err := m.open(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.making = nil
	a.err = err
	if err == nil {
		a.conn = &shared{ClientConn: conn}
		m.conn = a.conn
		conn.SetStateHook(func(*http.ClientConn) { a.conn.settle() })
		if m.closed {
			a.err = errGone
			_ = conn.Close()
		}
	}
	close(a.done)
}

// renounce makes place for another connection. The requests on the old one go on.
func (m *multiplex) renounce(c *shared) {
	m.mu.Lock()
	if m.conn == c {
		m.conn = nil
	}
	m.mu.Unlock()
	c.retired.Store(true)
	c.settle()
}

// close retires the connection: its streams end first, however late.
func (m *multiplex) close() {
	m.mu.Lock()
	m.closed = true
	c := m.conn
	m.mu.Unlock()
	if c != nil {
		c.retired.Store(true)
		c.settle()
	}
}

// started tells that RoundTrip has returned: from here the library counts.
func (c *shared) started() {
	c.starting.Add(-1)
	c.settle()
}

func (c *shared) settle() {
	if c.retired.Load() && c.starting.Load() == 0 && c.InFlight() == 0 {
		_ = c.Close()
	}
}

// openHTTP2 makes a connection. The transport only lends it its settings; it
// pools nothing.
func (e *Endpoint) openHTTP2(ctx context.Context) (*http.ClientConn, error) {
	w := e.deps.HTTP2
	if e.HTTP2.StreamWindow > 0 {
		w = config.Windows{Stream: e.HTTP2.StreamWindow, Conn: e.HTTP2.ConnWindow}
	}
	t := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return e.dial(ctx, sessionHTTP2) },
		DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		Protocols: only(func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }),
		HTTP2: &http.HTTP2Config{
			// A peer's limit on streams makes requests wait; it must not cost a connection.
			StrictMaxConcurrentRequests:   true,
			MaxReceiveBufferPerConnection: window(w.Conn, 1<<20), MaxReceiveBufferPerStream: window(w.Stream, 65535),
			SendPingTimeout: e.HTTP2.KeepaliveInterval, PingTimeout: e.HTTP2.KeepaliveTimeout,
		},
	}
	return t.NewClientConn(ctx, "http", e.Addr.String())
}

func window(n uint32, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return int(max(n, 65535))
}
