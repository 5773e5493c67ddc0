package bustest

import (
	"context"
	"fmt"
	"slices"

	"github.com/weftmesh/weft/bus"
)

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

func (t *member) Peer() string { return t.peer }

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
