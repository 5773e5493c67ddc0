package endpoint

import (
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/weftmesh/weft/proxy/internal/config"
)

// multiplex keeps the one HTTP/2 connection of an endpoint. All requests share
// it; while it is being made, they wait for the same attempt.
type multiplex struct {
	open func(context.Context) (*http2.ClientConn, error)

	mu     sync.Mutex
	conn   *http2.ClientConn
	making *attempt
	closed bool
}

type attempt struct {
	done chan struct{}
	conn *http2.ClientConn
	err  error
}

// get returns a connection that takes requests.
func (m *multiplex) get(ctx context.Context) (*http2.ClientConn, error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, errGone
	}
	if m.conn != nil && m.conn.CanTakeNewRequest() {
		defer m.mu.Unlock()
		return m.conn, nil
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
		return a.conn, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (m *multiplex) make(ctx context.Context, a *attempt) {
	a.conn, a.err = m.open(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.making = nil
	if a.err == nil {
		m.conn = a.conn
		if m.closed {
			retire(a.conn)
		}
	}
	close(a.done)
}

func (m *multiplex) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.conn != nil {
		retire(m.conn)
	}
}

// retire lets the streams of a connection end, then closes it.
func retire(c *http2.ClientConn) {
	c.SetDoNotReuse() // closes when the last stream ends, however late
	go func() {
		// Closes at once if there is none; one that stays longer is on its own.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = c.Shutdown(ctx)
	}()
}

func (e *Endpoint) openHTTP2(ctx context.Context) (*http2.ClientConn, error) {
	conn, err := e.dial(ctx, sessionHTTP2)
	if err != nil {
		return nil, err
	}
	cc, err := e.transport2().NewClientConn(conn)
	if err != nil {
		_ = conn.Close()
		return nil, &DialError{Addr: e.Addr, Err: err}
	}
	return cc, nil
}

// transport2 carries the settings of a connection; it pools nothing.
func (e *Endpoint) transport2() *http2.Transport {
	w := e.deps.HTTP2
	if e.HTTP2.StreamWindow > 0 {
		w = config.Windows{Stream: e.HTTP2.StreamWindow, Conn: e.HTTP2.ConnWindow}
	}
	t1 := &http.Transport{DisableCompression: true, HTTP2: &http.HTTP2Config{
		MaxReceiveBufferPerConnection: window(w.Conn, 1<<20), MaxReceiveBufferPerStream: window(w.Stream, 65535),
		SendPingTimeout: e.HTTP2.KeepaliveInterval, PingTimeout: e.HTTP2.KeepaliveTimeout,
	}}
	t2, err := http2.ConfigureTransports(t1)
	if err != nil { // only when the transport has been configured before
		t2 = &http2.Transport{}
	}
	t2.DisableCompression = true
	t2.MaxHeaderListSize = maxHeader
	// A peer's limit on streams makes requests wait; it must not cost a connection.
	t2.StrictMaxConcurrentStreams = true
	return t2
}

func window(n uint32, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return int(max(n, 65535))
}
