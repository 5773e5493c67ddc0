package door

import (
	"sync"
	"time"

	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// A crew works requests of HTTP/2 off, each on a goroutine that stays for the next:
// a new one for each would cost memory and grow its stack anew. The last to have
// become idle is the first to work again, so that the others are not needed for
// long, and end.
type crew struct {
	work func(job)

	mu    sync.Mutex
	idle  []*hand // the last used at the end
	timer *time.Timer
	round uint // sweeps so far: idle hands are dated by it, for a clock costs more
	ended bool
}

// a job is a request and who answers it.
type job struct {
	stream *h2.Stream
	handle func(message.Client)
}

// a hand is one goroutine of the crew.
type hand struct {
	next  chan job // a job without a stream is the end
	since uint     // the round in which it became idle
}

// rest is how long a hand is idle before it ends, at least; twice that at most.
const rest = 2 * time.Second

func (c *crew) do(j job) {
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		h := c.idle[n-1]
		c.idle[n-1] = nil
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		h.next <- j // there is room for one
		return
	}
	c.mu.Unlock()
	h := &hand{next: make(chan job, 1)}
	h.next <- j
	go c.serve(h)
}

func (c *crew) serve(h *hand) {
	for j := range h.next {
		if j.stream == nil {
			return
		}
		c.work(j)
		if !c.enter(h) {
			return
		}
	}
}

// enter makes a hand idle, unless the crew has ended.
func (c *crew) enter(h *hand) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	h.since = c.round
	c.idle = append(c.idle, h)
	if c.timer == nil {
		c.timer = time.AfterFunc(rest, c.sweep)
	}
	return true
}

// sweep ends the hands that have not been needed for a while.
func (c *crew) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for ; n < len(c.idle) && c.idle[n].since != c.round; n++ {
		c.idle[n].next <- job{}
	}
	c.round++
	left := copy(c.idle, c.idle[n:])
	clear(c.idle[left:])
	c.idle = c.idle[:left]
	if left == 0 {
		c.timer, c.idle = nil, nil
		return
	}
	c.timer.Reset(rest)
}

// end ends all hands, those that are busy when they no longer are.
func (c *crew) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for _, h := range c.idle {
		h.next <- job{}
	}
	c.idle = nil
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}
