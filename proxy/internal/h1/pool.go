package h1

import (
	"context"
	"net"
	"sync"
	"time"
)

// A Pool keeps the idle connections to one server. Dial must be set.
type Pool struct {
	Dial    func(context.Context) (net.Conn, error)
	MaxIdle int           // 0 means 10000
	Idle    time.Duration // how long one is kept; 0 means 3 s
	MaxHead int           // of an answer, in bytes; 0 means 256 KiB

	mu     sync.Mutex
	idle   []*Call // the last used at the end
	sweep  *time.Timer
	closed bool
}

// probeAfter is how long a connection may have been idle and be used without
// looking whether the server is still there.
const probeAfter = 2 * time.Millisecond

// Want is which connection is wanted.
type Want struct {
	Fresh bool // a new one
	Sure  bool // one whose server was there a moment ago: the request cannot be sent twice
}

// Get returns a connection that is idle, the last used first, or a new one.
func (p *Pool) Get(ctx context.Context, w Want) (*Call, error) {
	for !w.Fresh {
		c := p.pop()
		if c == nil {
			break
		}
		if !w.Sure && time.Since(c.idle) < probeAfter || c.in.Quiet() {
			return c, nil
		}
		c.Close()
	}
	nc, err := p.Dial(ctx)
	if err != nil {
		return nil, err
	}
	most := p.MaxHead
	if most <= 0 {
		most = 256 << 10
	}
	return NewCall(nc, most), nil
}

func (p *Pool) pop() *Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	c := p.idle[n-1]
	p.idle[n-1] = nil
	p.idle = p.idle[:n-1]
	return c
}

// Put ends a call and keeps its connection, if it can be used again.
func (p *Pool) Put(c *Call) {
	if !c.Done() {
		return
	}
	c.idle = time.Now()
	most, idle := p.MaxIdle, p.Idle
	if most <= 0 {
		most = 10000
	}
	if idle <= 0 {
		idle = 3 * time.Second
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= most {
		c.Close()
		return
	}
	p.idle = append(p.idle, c)
	if p.sweep == nil {
		p.sweep = time.AfterFunc(idle, p.old)
	}
}

// old closes what has been idle for too long.
func (p *Pool) old() {
	idle := p.Idle
	if idle <= 0 {
		idle = 3 * time.Second
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now, n := time.Now(), 0
	for n < len(p.idle) && now.Sub(p.idle[n].idle) >= idle {
		p.idle[n].Close()
		n++
	}
	rest := copy(p.idle, p.idle[n:])
	clear(p.idle[rest:])
	p.idle = p.idle[:rest]
	if rest == 0 {
		p.sweep, p.idle = nil, nil
		return
	}
	p.sweep.Reset(max(idle-now.Sub(p.idle[0].idle), time.Millisecond))
}

// Close closes what is idle, and keeps nothing any more.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		c.Close()
	}
	p.idle = nil
}
