package h2

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// A Line is the way to a peer: one connection, made when it is first needed and
// again when it takes no more requests. All requests share it; while it is being
// made they wait for the same attempt. Where one is not enough, because the peer
// takes no more streams on it or more waits to be written than may, another is
// made beside it. Open must be set; the connections it returns are run by the line.
type Line struct {
	Open func(context.Context) (*Conn, error)

	mu     sync.Mutex
	conns  []*Conn // the first made first
	making *attempt
	alone  time.Time // no connection is made beside another before
	closed bool
}

// discouraged is how long no other connection is tried beside those that there are
// when one could not be made.
const discouraged = time.Second

// maxConns bounds the connections of a line. What is more than needed ends by its
// idle timeout, for requests go to the first that has room.
const maxConns = 4

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
	best, crowded := l.best()
	if best != nil && !crowded {
		l.mu.Unlock()
		return best, nil
	}
	a := l.making
	if a == nil && (best == nil || len(l.conns) < maxConns && time.Now().After(l.alone)) {
		a = &attempt{done: make(chan struct{})}
		l.making = a
		// On its own context: whoever asked first may leave, the others stay.
		go l.make(context.WithoutCancel(ctx), a)
	}
	l.mu.Unlock()
	if best != nil { // its turn will come there, if not sooner
		return best, nil
	}
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// best is the first connection that has room, else the one on which the fewest
// requests are; nil if there is none. It forgets those that take no more.
func (l *Line) best() (best *Conn, crowded bool) {
	least := 0
	for i := 0; i < len(l.conns); {
		c := l.conns[i]
		load, full, usable := c.load()
		switch {
		case !usable:
			l.conns = slices.Delete(l.conns, i, i+1)
			continue
		case !full:
			return c, false
		case best == nil || load < least:
			best, least = c, load
		}
		i++
	}
	return best, true
}

// load is how many requests are on the connection or wait for it, and whether
// another would have to wait.
func (c *Conn) load() (n int, full, usable bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	full = c.told && uint32(len(c.streams)) >= c.peer.maxStreams || len(c.out) >= highWater
	return len(c.streams) + len(c.queue), full, c.usable()
}

func (l *Line) make(ctx context.Context, a *attempt) {
	conn, err := l.Open(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.making = nil
	a.conn, a.err = conn, err
	if err == nil {
		go func() {
			defer conn.survive()
			_ = conn.Run()
		}()
		if l.closed {
			a.conn, a.err = nil, ErrGone
			conn.Close()
		} else {
			l.conns = append(l.conns, conn)
		}
	}
	if err != nil {
		l.alone = time.Now().Add(discouraged)
	}
	close(a.done)
}

// Close retires the connections: their streams end first, however late.
func (l *Line) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, c := range l.conns {
		c.Shutdown()
	}
}
