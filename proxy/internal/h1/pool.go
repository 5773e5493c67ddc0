package h1

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/weftmesh/weft/proxy/internal/clock"
)

// A Pool keeps the idle connections to one server, apart for each host that was
// asked on them: an application may take what it was asked first for what the
// connection is about, and linkerd2-proxy never mixes hosts either. Dial must be set.
type Pool struct {
	Dial    func(context.Context) (net.Conn, error)
	MaxIdle int           // 0 means 10000
	Idle    time.Duration // how long one is kept; 0 means 3 s
	MaxHead int           // of an answer, in bytes; 0 means 256 KiB

	mu     sync.Mutex
	hosts  map[Host]*shelf
	last   *shelf // that was used last: mostly there is one host only
	kept   int    // connections on all shelves
	sweep  *time.Timer
	closed bool
}

// A Host is what requests on one connection have in common. Its strings may be
// borrowed.
type Host struct {
	Name     string
	Absolute bool // their targets are whole URIs
}

// A shelf has a host's idle connections, the last used at the end.
type shelf struct {
	host Host
	idle []*Call
	gone bool // from the pool
}

// maxHosts bounds the shelves: a client that asks for one host after the other must
// not take all ports and descriptors. The one that was used longest ago goes.
const maxHosts = 256

// probeAfter is how long a connection may have been idle and be used without
// looking whether the server is still there. A request that may be sent twice is, if
// it is not; to look costs each of them a call of the kernel.
const probeAfter = 100 * time.Millisecond

// Want is which connection is wanted.
type Want struct {
	Host  Host
	Fresh bool          // a new one
	Sure  bool          // one whose server was there a moment ago: the request cannot be sent twice
	Now   time.Duration // by clock, a moment ago; 0 if nobody has looked
}

// Get returns a connection that is idle, the last used first, or a new one.
func (p *Pool) Get(ctx context.Context, w Want) (*Call, error) {
	for !w.Fresh {
		c := p.pop(w.Host)
		if c == nil {
			break
		}
		if !w.Sure && w.Now != 0 && w.Now-c.idle < probeAfter || c.in.Quiet() {
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
	c := NewCall(nc, most)
	c.on = &shelf{host: Host{strings.Clone(w.Host.Name), w.Host.Absolute}, gone: true}
	return c, nil
}

// shelf finds a host's shelf, nil if there is none. mu is held.
func (p *Pool) shelf(of Host) *shelf {
	if p.last == nil || p.last.host != of {
		s := p.hosts[of]
		if s == nil {
			return nil
		}
		p.last = s
	}
	return p.last
}

func (p *Pool) pop(of Host) *Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelf(of)
	if s == nil || len(s.idle) == 0 {
		return nil
	}
	n := len(s.idle)
	c := s.idle[n-1]
	s.idle[n-1] = nil
	s.idle = s.idle[:n-1]
	p.kept--
	return c
}

// Put ends a call and keeps its connection, if it can be used again. now is by clock.
func (p *Pool) Put(c *Call, now time.Duration) {
	if !c.Done() {
		return
	}
	c.idle = now
	most := p.MaxIdle
	if most <= 0 {
		most = 10000
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.kept >= most {
		c.Close()
		return
	}
	s := c.on
	if s.gone {
		if s = p.shelf(c.on.host); s == nil {
			s = c.on
			p.build(s)
		}
		c.on = s
	}
	s.idle = append(s.idle, c)
	p.kept++
	if p.sweep == nil {
		p.sweep = time.AfterFunc(p.patience(), p.old)
	}
}

// build adds a host's shelf, in place of another if there are too many. mu is held.
func (p *Pool) build(s *shelf) {
	if p.hosts == nil {
		p.hosts = map[Host]*shelf{}
	}
	if len(p.hosts) >= maxHosts {
		var oldest *shelf
		for _, s := range p.hosts {
			if len(s.idle) == 0 {
				oldest = s
				break
			}
			if oldest == nil || s.idle[len(s.idle)-1].idle < oldest.idle[len(oldest.idle)-1].idle {
				oldest = s
			}
		}
		p.clear(oldest, len(oldest.idle))
		p.forget(oldest)
	}
	s.gone = false
	p.hosts[s.host], p.last = s, s
}

// forget takes a shelf away. mu is held.
func (p *Pool) forget(s *shelf) {
	s.gone = true
	delete(p.hosts, s.host)
	if p.last == s {
		p.last = nil
	}
}

// clear closes the n connections of a shelf that were used longest ago. mu is held.
func (p *Pool) clear(s *shelf, n int) {
	for _, c := range s.idle[:n] {
		c.Close()
	}
	p.kept -= n
	rest := copy(s.idle, s.idle[n:])
	clear(s.idle[rest:])
	s.idle = s.idle[:rest]
}

func (p *Pool) patience() time.Duration {
	if p.Idle > 0 {
		return p.Idle
	}
	return 3 * time.Second
}

// old closes what has been idle for too long.
func (p *Pool) old() {
	idle := p.patience()
	p.mu.Lock()
	defer p.mu.Unlock()
	now := clock.Now()
	next := idle
	for _, s := range p.hosts {
		n := 0
		for n < len(s.idle) && now-s.idle[n].idle >= idle {
			n++
		}
		p.clear(s, n)
		if len(s.idle) == 0 {
			p.forget(s)
			continue
		}
		next = min(next, idle-(now-s.idle[0].idle))
	}
	if p.kept == 0 {
		p.sweep, p.hosts, p.last = nil, nil, nil
		return
	}
	p.sweep.Reset(max(next, time.Millisecond))
}

// Close closes what is idle, and keeps nothing any more.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.hosts {
		p.clear(s, len(s.idle))
	}
	p.hosts, p.last = nil, nil
}
