package table

import (
	"net/netip"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// Cause is why a watcher was woken: when Kubernetes' change was observed, and
// the trace that follows it.
type Cause struct {
	ObservedAt time.Time
	Trace      trace.SpanContext
}

// topic is something a stream can depend on.
type topic struct {
	kind byte // 'w'orkload, 'n'amespace, 's'ervice, 'a'ddress, 'e'gress
	key  string
	addr netip.Addr
}

func workloadTopic(key string) topic   { return topic{kind: 'w', key: key} }
func namespaceTopic(name string) topic { return topic{kind: 'n', key: name} }
func serviceTopic(key string) topic    { return topic{kind: 's', key: key} }
func egressTopic(name string) topic    { return topic{kind: 'e', key: name} }
func addressTopic(a netip.Addr) topic  { return topic{kind: 'a', addr: a} }

// Watch is woken when what it watches may have changed. It holds one wake-up,
// however many cuts pass by: a slow stream costs one view, not a queue.
type Watch struct {
	// C delivers after a change; reading it takes the wake-up.
	C <-chan struct{}

	c      chan struct{}
	subs   *subscriptions
	topics []topic

	mu    sync.Mutex
	cause Cause
}

// Take returns why the watcher was woken and forgets it. Of several causes the
// first observed counts, since that change has waited longest.
func (w *Watch) Take() Cause {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.cause
	w.cause = Cause{}
	return c
}

// Close ends the watch. It may be called twice.
func (w *Watch) Close() { w.subs.remove(w) }

func (w *Watch) wake(c Cause) {
	w.mu.Lock()
	if w.cause.ObservedAt.IsZero() {
		w.cause = c
	}
	w.mu.Unlock()
	select {
	case w.c <- struct{}{}:
	default: // it has not taken the last wake-up yet
	}
}

// subscriptions are the open watches by topic.
type subscriptions struct {
	mu      sync.Mutex
	byTopic map[topic]map[*Watch]struct{}
}

func (s *subscriptions) add(topics ...topic) *Watch {
	c := make(chan struct{}, 1)
	w := &Watch{C: c, c: c, subs: s, topics: topics}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byTopic == nil {
		s.byTopic = map[topic]map[*Watch]struct{}{}
	}
	for _, t := range topics {
		if s.byTopic[t] == nil {
			s.byTopic[t] = map[*Watch]struct{}{}
		}
		s.byTopic[t][w] = struct{}{}
	}
	return w
}

func (s *subscriptions) remove(w *Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range w.topics {
		delete(s.byTopic[t], w)
		if len(s.byTopic[t]) == 0 {
			delete(s.byTopic, t) // or every pod ever watched would stay
		}
	}
}

func (s *subscriptions) wake(topics []topic, c Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range topics {
		for w := range s.byTopic[t] {
			w.wake(c)
		}
	}
}

// size counts the topics that somebody watches.
func (s *subscriptions) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byTopic)
}

// WatchWorkload watches a workload and the policies of its namespace.
func (t *Tables) WatchWorkload(w derive.Workload) *Watch {
	return t.subs.add(workloadTopic(workloadKey(w)), namespaceTopic(w.Namespace))
}

// WatchService watches a Service by name.
func (t *Tables) WatchService(namespace, name string) *Watch {
	return t.subs.add(serviceTopic(bus.Key(namespace, name)))
}

// WatchTarget watches what an address belongs to for clients of a namespace, and
// its routes. Egress networks never hold an address of the cluster.
func (t *Tables) WatchTarget(a netip.Addr, source string) *Watch {
	topics := []topic{addressTopic(a.Unmap())}
	if !t.cluster.Contains(a) {
		topics = append(topics, egressTopic(source), egressTopic(t.cluster.EgressNamespace))
	}
	return t.subs.add(topics...)
}
