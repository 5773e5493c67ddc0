// Package door serves clients' connections, in HTTP/1 or HTTP/2, and lets them go
// when the proxy ends: idle ones at once, the others with what they are busy with.
package door

import (
	"errors"
	"log/slog"
	"net"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/weftmesh/weft/proxy/internal/detect"
	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/h1"
	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// Kind is the version of HTTP that a connection carries.
type Kind uint8

// The kinds. Either is found out by the preface of HTTP/2.
const (
	Either Kind = iota
	HTTP1
	HTTP2
)

// Config is how clients are served.
type Config struct {
	HTTP2   h2.Config // Handle is not looked at
	MaxHead int       // of HTTP/1, in bytes; 0 means 256 KiB
	Log     *slog.Logger
}

// A Door has the connections that it serves.
type Door struct {
	cfg  Config
	crew crew

	mu     sync.Mutex
	open   map[leaver]struct{}
	tide   *time.Timer // nil while nothing is open
	ending bool
	closed bool
	empty  chan struct{} // closed when ending and nothing is open
}

// restAfter is how long a connection of HTTP/1 is idle before it rests, at least;
// twice that at most.
const restAfter = 2 * time.Second

// A leaver is a connection, told to end.
type leaver interface {
	Shutdown()
	Close()
}

// New returns a door that serves nobody yet.
func New(cfg Config) *Door {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	d := &Door{cfg: cfg, open: map[leaver]struct{}{}, empty: make(chan struct{})}
	d.crew.work = func(j job) {
		defer j.stream.Done()
		d.safely(j.stream, j.handle)
	}
	return d
}

// Serve serves a connection to its end, and closes it unless a tunnel took it; done
// is called then. handle answers a request; when it returns the request is over. For
// HTTP/2 it is called on another goroutine than this one. Serve returns before
// the end if the connection rests: then it is served by a goroutine of its own.
func (d *Door) Serve(nc net.Conn, kind Kind, handle func(message.Client), done func()) {
	var as leaver
	if kind == Either {
		as = newcomer{nc}
		if !d.enter(nil, as) {
			_ = nc.Close()
			done()
			return
		}
		var err error
		if nc, kind, err = find(nc); err != nil {
			_ = nc.Close()
			d.leave(as)
			done()
			return
		}
	}
	if kind == HTTP2 {
		defer done()
		defer d.survive(nc)
		d.serve2(nc, as, handle)
		return
	}
	c := h1.NewConn(nc, h1.Config{MaxHead: d.cfg.MaxHead, Handle: func(x *h1.Exchange) { d.safely(x, handle) }})
	if !d.enter(as, c) {
		c.Close()
		done()
		return
	}
	d.serve1(nc, c, done)
}

// A newcomer has not said what it speaks: it is idle.
type newcomer struct{ nc net.Conn }

func (n newcomer) Shutdown() { _ = n.nc.Close() }
func (n newcomer) Close()    { _ = n.nc.Close() }

// serve1 leaves a connection that rests to a goroutine whose stack is small.
func (d *Door) serve1(nc net.Conn, c *h1.Conn, done func()) {
	rests := false
	defer func() {
		if !rests {
			d.leave(c)
			done()
		}
	}()
	defer d.survive(nc)
	if rests = c.Serve(); rests {
		go d.serve1(nc, c, done)
	}
}

func (d *Door) serve2(nc net.Conn, as leaver, handle func(message.Client)) {
	cfg := d.cfg.HTTP2
	cfg.Handle = func(s *h2.Stream) { d.crew.do(job{s, handle}) }
	c := h2.Server(nc, cfg)
	if !d.enter(as, c) {
		c.Close()
		return
	}
	defer d.leave(c)
	err := c.Run()
	if bad, ok := errors.AsType[*frame.ConnError](err); ok {
		d.cfg.Log.Debug("an HTTP/2 client was given up", "client", nc.RemoteAddr().String(), "error", bad)
	}
}

// survive keeps one connection's bug from ending all the others. It is deferred.
func (d *Door) survive(nc net.Conn) {
	if cause := recover(); cause != nil {
		d.cfg.Log.Error("a connection was given up", "client", nc.RemoteAddr().String(), "panic", cause, "stack", string(debug.Stack()))
		_ = nc.Close()
	}
}

// safely keeps one request's bug from ending all the others.
func (d *Door) safely(c message.Client, handle func(message.Client)) {
	defer func() {
		if cause := recover(); cause != nil {
			d.cfg.Log.Error("a request was given up", "panic", cause, "stack", string(debug.Stack()))
			c.Break(message.ErrAborted)
		}
	}()
	handle(c)
}

// enter takes a connection in, in place of what it was, if that is not nil. It is too
// late when the door has been told to end.
func (d *Door) enter(was, c leaver) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, was)
	if d.ending {
		d.settle()
		return false
	}
	d.open[c] = struct{}{}
	if d.tide == nil {
		d.tide = time.AfterFunc(restAfter, d.ebb)
	}
	return true
}

// ebb lets connections rest that are idle, as long as there are any.
func (d *Door) ebb() {
	collections := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(collections)
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.open {
		if c, ok := c.(*h1.Conn); ok {
			c.Rest(collections[0].Value.Uint64())
		}
	}
	if len(d.open) == 0 {
		d.tide = nil
		return
	}
	d.tide.Reset(restAfter)
}

func (d *Door) leave(c leaver) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, c)
	d.settle()
}

func (d *Door) settle() {
	if d.ending && len(d.open) == 0 && !d.closed {
		d.closed = true
		d.crew.end()
		close(d.empty)
	}
}

// Shutdown takes no more connections, and asks those that are open to end. The
// channel is closed when they have.
func (d *Door) Shutdown() <-chan struct{} {
	for _, c := range d.end() {
		c.Shutdown()
	}
	return d.empty
}

// Close ends all connections at once.
func (d *Door) Close() {
	for _, c := range d.end() {
		c.Close()
	}
}

func (d *Door) end() []leaver {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ending = true
	d.settle()
	var all []leaver
	for c := range d.open {
		all = append(all, c)
	}
	return all
}

// find tells HTTP/2 by its preface, as far as need be.
func find(nc net.Conn) (net.Conn, Kind, error) {
	var b [len(frame.Preface)]byte
	for n := 0; ; {
		more, err := nc.Read(b[n:])
		n += more
		switch {
		case string(b[:n]) != frame.Preface[:n]:
			return detect.Replay(nc, append([]byte(nil), b[:n]...)), HTTP1, nil
		case n == len(b):
			return detect.Replay(nc, append([]byte(nil), b[:n]...)), HTTP2, nil
		case err != nil:
			return nc, HTTP1, err
		}
	}
}
