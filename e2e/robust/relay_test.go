package robust

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// How a wire behaves.
const (
	passes = iota
	// cut: connections are reset, and new ones refused.
	cut
	// stalls: nothing is said and nothing arrives, in both directions.
	stalls
	// slow: a trickle.
	slow
)

// The trickle of a slow wire.
const (
	slowBytes = 8 << 10
	slowEvery = 50 * time.Millisecond
)

// wire is a TCP relay between a process and a server.
type wire struct {
	Addr string
	to   func() string

	mu      sync.Mutex
	state   int
	changed chan struct{} // closed at the next change of state
	conns   map[net.Conn]bool
}

// newWire listens for the test's life. to tells where the server is now.
func newWire(t *testing.T, to func() string) *wire {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Addr: lis.Addr().String(), to: to, changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = lis.Close()
		w.set(cut)
	})
	go func() {
		for {
			near, err := lis.Accept()
			if err != nil {
				return
			}
			go w.carry(t.Context(), near)
		}
	}()
	return w
}

// set changes how the wire behaves.
func (w *wire) set(state int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = state
	close(w.changed)
	w.changed = make(chan struct{})
	if state == cut {
		for c := range w.conns {
			reset(c)
		}
		clear(w.conns)
	}
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// keep notes a connection, unless the wire is cut.
func (w *wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == cut {
		return false
	}
	w.conns[c] = true
	return true
}

func (w *wire) drop(c net.Conn) {
	w.mu.Lock()
	delete(w.conns, c)
	w.mu.Unlock()
	_ = c.Close()
}

func (w *wire) carry(ctx context.Context, near net.Conn) {
	if !w.keep(near) {
		reset(near)
		return
	}
	defer w.drop(near)
	if !w.open(ctx) {
		return
	}
	far, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", w.to())
	if err != nil {
		return
	}
	defer w.drop(far)
	if !w.keep(far) {
		return
	}
	var both sync.WaitGroup
	for _, d := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			w.copy(ctx, d[0], d[1])
			_ = d[0].Close()
			_ = d[1].Close()
		})
	}
	both.Wait()
}

// copy carries bytes one way. A byte that is read waits while the wire stalls,
// and the sender's window fills behind it.
func (w *wire) copy(ctx context.Context, from io.Reader, to io.Writer) {
	buf := make([]byte, 32<<10)
	for {
		size := len(buf)
		if w.now() == slow {
			size = slowBytes
			select {
			case <-time.After(slowEvery):
			case <-ctx.Done():
				return
			}
		}
		n, err := from.Read(buf[:size])
		if n > 0 {
			if !w.open(ctx) {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (w *wire) now() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// open waits while the wire stalls; false means that it was cut.
func (w *wire) open(ctx context.Context) bool {
	for {
		w.mu.Lock()
		state, changed := w.state, w.changed
		w.mu.Unlock()
		switch state {
		case cut:
			return false
		case stalls:
			select {
			case <-changed:
			case <-ctx.Done():
				return false
			}
		default:
			return true
		}
	}
}
