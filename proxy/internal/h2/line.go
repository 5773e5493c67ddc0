package h2

import (
	"context"
	"errors"
	"sync"
)

// A Line is the one connection to a peer, made when it is first needed and again
// when it takes no more requests. All requests share it; while it is being made
// they wait for the same attempt. Open must be set; the connection it returns is
// run by the line.
type Line struct {
	Open func(context.Context) (*Conn, error)

	mu     sync.Mutex
	conn   *Conn
	making *attempt
	closed bool
}

type attempt struct {
	done chan struct{}
	conn *Conn
	err  error
}

// ErrGone means that the line has been closed.
var ErrGone = errors.New("the peer has been left")

// Get returns a connection that takes a request.
func (l *Line) Get(ctx context.Context) (*Conn, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, ErrGone
	}
	if l.conn != nil && l.conn.Usable() {
		defer l.mu.Unlock()
		return l.conn, nil
	}
	a := l.making
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		l.making = a
		// On its own context: whoever asked first may leave, the others stay.
		go l.make(context.WithoutCancel(ctx), a)
	}
	l.mu.Unlock()
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *Line) make(ctx context.Context, a *attempt) {
	conn, err := l.Open(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.making = nil
	a.conn, a.err = conn, err
	if err == nil {
		go func() { _ = conn.Run() }()
		if l.closed {
			a.conn, a.err = nil, ErrGone
			conn.Close()
		} else {
			l.conn = conn
		}
	}
	close(a.done)
}

// Close retires the connection: its streams end first, however late.
func (l *Line) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.conn != nil {
		l.conn.Shutdown()
	}
}
