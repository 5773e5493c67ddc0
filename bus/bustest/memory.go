// Package bustest has buses for tests: NATS in this process, and memory with
// the faults that a network has. Tests must not share one bus.
package bustest

import (
	"context"
	"fmt"
	"slices"
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

// member is one process's connection.
type member struct {
	mem           *Mem
	cluster, peer string
	// Below: mem.mu.
	cut, closed bool
	watchers    map[int]func(bus.Event)
	nextWatch   int
}

var _ bus.Transport = (*member)(nil)

// memSub is one subscription; answer is nil for a plain one.
type memSub struct {
	owner          *member
	subject, group string
	deliver        func(bus.Message)
	answer         func(bus.Request)
	stopped        bool
}

func (t *member) Cluster() string { return t.cluster }
func (t *member) Peer() string    { return t.peer }

func (t *member) Publish(subject string, header bus.Header, data []byte) error {
	m := t.mem
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.cut || t.closed {
		return fmt.Errorf("publishing to %s: %w", subject, bus.ErrDisconnected)
	}
	msg := bus.Message{Subject: subject, Header: header, Data: slices.Clone(data)}
	for _, s := range m.subs {
		if s.subject == subject && s.deliver != nil {
			m.send(&packet{
				from: t, to: s.owner, msg: msg,
				deliver: func() { s.deliver(msg) }, gone: func() bool { return s.stopped },
			})
		}
	}
	return nil
}

func (t *member) Subscribe(subject string, deliver func(bus.Message)) (bus.Subscription, error) {
	return t.add(&memSub{owner: t, subject: subject, deliver: deliver})
}

func (t *member) Serve(subject, group string, answer func(bus.Request)) (bus.Subscription, error) {
	return t.add(&memSub{owner: t, subject: subject, group: group, answer: answer})
}

func (t *member) add(s *memSub) (bus.Subscription, error) {
	t.mem.mu.Lock()
	defer t.mem.mu.Unlock()
	if t.closed {
		return nil, fmt.Errorf("subscribing to %s: %w", s.subject, bus.ErrDisconnected)
	}
	t.mem.subs = append(t.mem.subs, s)
	return s, nil
}

// Stop ends the subscription.
func (s *memSub) Stop() {
	m := s.owner.mem
	m.mu.Lock()
	defer m.mu.Unlock()
	s.stopped = true
	m.subs = slices.DeleteFunc(m.subs, func(o *memSub) bool { return o == s })
}

func (t *member) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	m := t.mem
	answered := make(chan []byte, 1)
	m.mu.Lock()
	s, err := m.pick(t, subject)
	if err == nil {
		msg := bus.Message{Subject: subject, Data: slices.Clone(data)}
		m.send(&packet{
			from: t, to: s.owner, msg: msg, gone: func() bool { return s.stopped },
			deliver: func() { s.answer(bus.Request{Data: msg.Data, Respond: m.responder(s.owner, t, answered)}) },
		})
	}
	m.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", subject, err)
	}
	select {
	case b := <-answered:
		return b, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("asking %s: %w", subject, ctx.Err())
	}
}

// pick chooses who answers: each member of the group in turn. m.mu is held.
func (m *Mem) pick(from *member, subject string) (*memSub, error) {
	if from.cut || from.closed {
		return nil, bus.ErrDisconnected
	}
	var able []*memSub
	for _, s := range m.subs {
		if s.subject == subject && s.answer != nil && !s.owner.cut && !s.owner.closed {
			able = append(able, s)
		}
	}
	if len(able) == 0 {
		return nil, bus.ErrNoPeers
	}
	m.turn[subject]++
	return able[m.turn[subject]%len(able)], nil
}

func (m *Mem) responder(from, to *member, answered chan<- []byte) func([]byte) error {
	return func(data []byte) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if from.cut || from.closed {
			return fmt.Errorf("answering: %w", bus.ErrDisconnected)
		}
		msg := bus.Message{Subject: ReplySubject, Data: slices.Clone(data)}
		m.send(&packet{
			from: from, to: to, msg: msg, gone: func() bool { return false },
			deliver: func() {
				select {
				case answered <- msg.Data:
				default: // repeated
				}
			},
		})
		return nil
	}
}

func (t *member) Connected() bool {
	t.mem.mu.Lock()
	defer t.mem.mu.Unlock()
	return !t.cut && !t.closed
}

func (t *member) Watch(heard func(bus.Event)) (stop func()) {
	t.mem.mu.Lock()
	defer t.mem.mu.Unlock()
	id := t.nextWatch
	t.nextWatch++
	t.watchers[id] = heard
	return func() {
		t.mem.mu.Lock()
		defer t.mem.mu.Unlock()
		delete(t.watchers, id)
	}
}

// tell reports an event to the member's watchers, which don't block.
func (t *member) tell(e bus.Event) {
	t.mem.mu.Lock()
	defer t.mem.mu.Unlock()
	for id := range t.nextWatch {
		if heard := t.watchers[id]; heard != nil {
			heard(e)
		}
	}
}

// Reconnect has nothing to mend in memory but what is told.
func (t *member) Reconnect() {
	t.mem.mu.Lock()
	off := t.cut || t.closed
	t.mem.mu.Unlock()
	if !off {
		t.tell(bus.Disconnected)
		t.tell(bus.Connected)
	}
}

func (t *member) Run(ctx context.Context) error {
	<-ctx.Done()
	t.Close()
	return nil
}

func (t *member) Close() {
	t.mem.mu.Lock()
	defer t.mem.mu.Unlock()
	t.closed = true
	t.mem.subs = slices.DeleteFunc(t.mem.subs, func(s *memSub) bool { return s.owner == t })
}
