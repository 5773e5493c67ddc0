package bustest

import (
	"strings"

	"github.com/weftmesh/weft/bus"
)

// ReplySubject is the subject of answers to requests, for Which.
const ReplySubject = "_reply"

// Which picks messages; an empty field matches all.
type Which struct {
	To   bus.Transport
	From bus.Transport
	// Subject is the end of the subject: "log", "ask", or a whole one.
	Subject string
	// Kind is the header K: "batch" or "beacon".
	Kind string
}

func (w Which) match(p *packet) bool {
	return (w.To == nil || w.To == bus.Transport(p.to)) &&
		(w.From == nil || w.From == bus.Transport(p.from)) &&
		strings.HasSuffix(p.msg.Subject, w.Subject) &&
		(w.Kind == "" || w.Kind == p.msg.Header["K"])
}

// Fate is what happens to a message.
type Fate int

// The fates of a message. A held one arrives after the next message to the
// same process.
const (
	Pass Fate = iota
	Lost
	Repeated
	Held
)

type faults struct {
	planned []*plan
	decide  func(from, to bus.Transport, msg bus.Message) Fate
	held    []*packet
}

type plan struct {
	which Which
	left  int
	fate  Fate
}

// apply gives the packets to queue in place of p: none, p, p twice, or p and
// one that was held.
func (f *faults) apply(p *packet) []*packet {
	fate := f.fate(p)
	var out []*packet
	switch fate {
	case Lost:
		return nil
	case Held:
		f.held = append(f.held, p)
		return nil
	case Repeated:
		out = []*packet{p, p}
	default:
		out = []*packet{p}
	}
	kept := f.held[:0]
	for _, h := range f.held {
		if h.to == p.to {
			out = append(out, h)
		} else {
			kept = append(kept, h)
		}
	}
	f.held = kept
	return out
}

func (f *faults) fate(p *packet) Fate {
	for _, plan := range f.planned {
		if plan.left > 0 && plan.which.match(p) {
			plan.left--
			return plan.fate
		}
	}
	if f.decide != nil {
		return f.decide(p.from, p.to, p.msg)
	}
	return Pass
}

func (m *Mem) plan(n int, which Which, fate Fate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults.planned = append(m.faults.planned, &plan{which, n, fate})
}

// Lose loses the next n messages that match.
func (m *Mem) Lose(n int, which Which) { m.plan(n, which, Lost) }

// Repeat delivers the next n messages that match twice.
func (m *Mem) Repeat(n int, which Which) { m.plan(n, which, Repeated) }

// Reorder makes each of the next n messages that match change places with what
// is sent to the same process after it.
func (m *Mem) Reorder(n int, which Which) { m.plan(n, which, Held) }

// Decide lets a test choose each message's fate, after what was planned. decide
// is called with the bus locked.
func (m *Mem) Decide(decide func(from, to bus.Transport, msg bus.Message) Fate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults.decide = decide
}

// Cut takes a process off the bus: what is on the way to it is lost, sending
// fails. Heal undoes it. Each is told as the NATS driver tells it.
func (m *Mem) Cut(t bus.Transport) { m.setCut(t, true, bus.Disconnected) }

// Heal brings a process back after Cut.
func (m *Mem) Heal(t bus.Transport) { m.setCut(t, false, bus.Connected) }

func (m *Mem) setCut(t bus.Transport, cut bool, e bus.Event) {
	mem := t.(*member)
	m.mu.Lock()
	mem.cut = cut
	m.mu.Unlock()
	mem.tell(e)
}

// Slow drops what is on the way to a process and tells it so, as NATS does to
// a slow consumer.
func (m *Mem) Slow(t bus.Transport) {
	mem := t.(*member)
	m.mu.Lock()
	kept := m.queue[:0]
	for _, p := range m.queue {
		if p.to != mem || p.msg.Subject == ReplySubject {
			kept = append(kept, p)
		}
	}
	m.queue = kept
	m.mu.Unlock()
	mem.tell(bus.Slow)
}
