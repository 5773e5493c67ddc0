// Package bustest has buses for tests: NATS in this process, and memory with
// the faults that a network has. Tests must not share one bus.
package bustest

import (
	"fmt"
	"sync"

	"github.com/weftmesh/weft/bus"
)

// Mem is a bus in memory for any number of processes of any number of clusters.
// All deliveries have one total order. By default a goroutine of the bus
// delivers each message soon after it was sent; after Manual nothing moves but
// by Step, which makes a test deterministic.
type Mem struct {
	mu     sync.Mutex
	queue  []*packet
	subs   []*memSub
	nextID int
	manual bool
	moving bool
	faults faults
	// turn rotates requests between the members of a group.
	turn map[string]int
}

// packet is one message on its way to one subscription, or an answer.
type packet struct {
	from, to *member
	msg      bus.Message
	deliver  func()
	// gone says that nobody listens any more. Mem.mu is held.
	gone func() bool
}

// Memory makes an empty bus.
func Memory() *Mem { return &Mem{turn: map[string]int{}} }

// Join connects one more process to a cluster's bus ("" is "local").
func (m *Mem) Join(cluster string) bus.Transport {
	if cluster == "" {
		cluster = "local"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nextID++
	return &member{mem: m, cluster: cluster, peer: fmt.Sprintf("mem-%d", m.nextID), watchers: map[int]func(bus.Event){}}
}

// Manual stops deliveries: from now on only Step moves messages.
func (m *Mem) Manual() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.manual = true
}

// Automatic undoes Manual and delivers what waits.
func (m *Mem) Automatic() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.manual = false
	m.move()
}

// Step delivers up to n waiting messages, in order, in the caller's goroutine,
// and says how many there were.
func (m *Mem) Step(n int) int {
	for i := range n {
		m.mu.Lock()
		p, ok := m.pop()
		m.mu.Unlock()
		if !ok {
			return i
		}
		p.deliver()
	}
	return n
}

// Waiting is the number of messages on their way.
func (m *Mem) Waiting() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.queue)
}

// move starts deliveries unless they run or are manual. m.mu is held.
func (m *Mem) move() {
	if m.manual || m.moving || len(m.queue) == 0 {
		return
	}
	m.moving = true
	go func() {
		for {
			m.mu.Lock()
			if m.manual || len(m.queue) == 0 {
				m.moving = false
				m.mu.Unlock()
				return
			}
			p, ok := m.pop()
			m.mu.Unlock()
			if ok {
				p.deliver()
			}
		}
	}()
}

// pop takes the next packet that somebody still listens to. m.mu is held.
func (m *Mem) pop() (*packet, bool) {
	for len(m.queue) > 0 {
		p := m.queue[0]
		m.queue[0] = nil
		m.queue = m.queue[1:]
		if !p.to.cut && !p.to.closed && !p.gone() {
			return p, true
		}
	}
	return nil, false
}

// send queues a packet after the faults had their say. m.mu is held.
func (m *Mem) send(p *packet) {
	if p.from.cut || p.to.cut {
		return
	}
	m.queue = append(m.queue, m.faults.apply(p)...)
	m.move()
}
