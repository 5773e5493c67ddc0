package serve

import (
	"cmp"
	"context"
	"hash/maphash"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// crew makes the rounds of all streams. A stream that waits then needs no more
// than a small stack, and a change with ten thousand subscribers no more
// goroutines than there are processors. Workers exist while there is work.
//
// gRPC's Send has no deadline, so a worker may be held up by a client that does
// not read. Others come in its place within moments: it delays nobody, and keeps
// one goroutine until it reads, leaves, or has taken nothing for the limit.
type crew struct {
	blocked time.Duration
	most    int // workers that are not held up

	mu      sync.Mutex
	queue   []*stream
	head    int // of the queue: what is before is done
	sorted  int // of the queue: what is before is in order of connections
	seed    maphash.Seed
	workers map[*worker]struct{}
	timer   *time.Timer
	soon    bool   // it is set for the next moment
	streams stream // the ends of the list of all streams: their neighbours
	stopped bool
}

// moment is how long a worker may stay with one stream before others need not
// wait for it.
const moment = 2 * time.Millisecond

// turn is where a stream is.
type turn uint8

const (
	turnIdle   turn = iota
	turnQueued      // in the queue, once
	turnAtWork      // a worker has it
	turnAgain       // a worker has it, and it has been woken since
	turnOver        // nobody begins anything for it any more
)

// worker is one goroutine of the crew.
type worker struct {
	on          *stream // guarded by crew.mu, as the counts are
	steps, seen uint64
	// since is when it began to write a message, in Unix nanoseconds; 0 while it
	// writes none.
	since atomic.Int64
	reads atomic.Bool // it waits for the question
}

// held tells whether its client keeps it waiting. The lock of the crew is held.
func (w *worker) held() bool {
	return w.steps == w.seen && (w.since.Load() != 0 || w.reads.Load())
}

func newCrew(blocked time.Duration) *crew {
	c := &crew{blocked: blocked, most: 2 * runtime.GOMAXPROCS(0), workers: make(map[*worker]struct{}), seed: maphash.MakeSeed()}
	c.streams.before, c.streams.after = &c.streams, &c.streams
	return c
}

// conn is a number for a call's connection.
func (c *crew) conn(ctx context.Context) uint64 {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return 0
	}
	if tcp, ok := p.Addr.(*net.TCPAddr); ok {
		return maphash.Comparable(c.seed, tcp.AddrPort())
	}
	return 0
}

// enroll begins with a stream, unless the crew has stopped.
func (c *crew) enroll(s *stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return false
	}
	s.before, s.after = &c.streams, c.streams.after
	s.before.after, s.after.before = s, s
	c.push(s)
	c.staff()
	return true
}

// stop ends all streams, for good.
func (c *crew) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	for s := c.streams.after; s != &c.streams; s = s.after {
		s.fail(errStop)
	}
}

// wake queues a stream, unless it is over or queued already.
func (c *crew) wake(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s.turn {
	case turnIdle:
		c.push(s)
		c.staff()
	case turnAtWork:
		s.turn = turnAgain
	case turnQueued, turnAgain, turnOver:
	}
}

// push puts a stream at the end of the queue. The lock is held.
func (c *crew) push(s *stream) {
	if c.head > 1024 && c.head > len(c.queue)/2 {
		n := copy(c.queue, c.queue[c.head:])
		clear(c.queue[n:])
		c.queue, c.sorted, c.head = c.queue[:n], max(0, c.sorted-c.head), 0
	}
	s.turn = turnQueued
	c.queue = append(c.queue, s)
}

// staff sees to it that what is queued is worked at. The lock is held.
func (c *crew) staff() {
	if len(c.workers) < c.most {
		c.hire()
	}
	if !c.soon {
		c.soon = true
		c.arm(moment)
	}
}

func (c *crew) hire() {
	w := new(worker)
	c.workers[w] = struct{}{}
	go c.work(w)
}

func (c *crew) arm(d time.Duration) {
	if c.timer == nil {
		c.timer = time.AfterFunc(d, c.look)
		return
	}
	c.timer.Reset(d)
}

// look finds clients that do not read, and workers that are held up.
func (c *crew) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, held := time.Now(), 0
	for w := range c.workers {
		if w.held() {
			held++
		}
		w.seen = w.steps
		if at := w.since.Load(); at != 0 && w.on != nil && now.Sub(time.Unix(0, at)) >= c.blocked {
			w.on.fail(errBlocked)
		}
	}
	c.soon = false
	switch waiting := len(c.queue) - c.head; {
	case waiting > 0:
		// As many as are held up, so that a hundred at once cost no hundred moments.
		if len(c.workers)-held < c.most {
			for range min(waiting, max(c.most, held)) {
				c.hire()
			}
		}
		c.soon = true
		c.arm(moment)
	case len(c.workers) > 0:
		c.arm(max(moment, c.blocked/8))
	}
}

// take gives a worker the next stream, nil and its leave if there is none.
func (c *crew) take(w *worker) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.head < len(c.queue) {
		if c.head >= c.sorted {
			// What ten thousand are told goes out connection by connection, so that
			// each writes all of its own at once. What comes later waits its turn.
			slices.SortStableFunc(c.queue[c.head:], func(a, b *stream) int { return cmp.Compare(a.conn, b.conn) })
			c.sorted = len(c.queue)
		}
		s := c.queue[c.head]
		c.queue[c.head] = nil
		c.head++
		if s.turn != turnQueued {
			continue // it ended meanwhile
		}
		s.turn = turnAtWork
		w.on = s
		w.steps++
		return s
	}
	c.head, c.sorted, c.queue = 0, 0, c.queue[:0]
	if cap(c.queue) > 1024 {
		c.queue = nil // what a storm needed is not kept
	}
	delete(c.workers, w)
	return nil
}

func (c *crew) work(w *worker) {
	for s := c.take(w); s != nil; s = c.take(w) {
		err := s.step(w)
		if c.handBack(w, s, err) {
			s.close()
		}
		if err != nil {
			s.fail(err)
		}
	}
}

// handBack ends a worker's step, and tells whether the stream is over, which the
// worker then closes.
func (c *crew) handBack(w *worker, s *stream, err error) (over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.on = nil
	switch {
	case err != nil || s.turn == turnOver:
		s.turn = turnOver
		return true
	case s.turn == turnAgain:
		c.push(s)
	default:
		s.turn = turnIdle
	}
	return false
}

// retire ends a stream's turns, and tells whether the caller is the one to close
// it: if a worker has it, or had it last, that one does.
func (c *crew) retire(s *stream) (mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.before.after, s.after.before = s.after, s.before
	s.before, s.after = nil, nil
	mine = s.turn == turnIdle || s.turn == turnQueued
	s.turn = turnOver
	return mine
}

// send writes messages. It ends with the call, which look ends if it takes too
// long.
func (w *worker) send(ss grpc.ServerStream, msgs []encoded) error {
	defer w.since.Store(0)
	for _, m := range msgs {
		w.since.Store(time.Now().UnixNano())
		if err := ss.SendMsg(m); err != nil {
			return err //nolint:wrapcheck // the caller only needs to know that the client is gone
		}
	}
	return nil
}
