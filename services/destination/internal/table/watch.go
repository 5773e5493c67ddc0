package table

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/weftmesh/weft/bus"
)

// Topic names something whose change can change an answer. It is comparable.
type Topic struct {
	kind topicKind
	key  string
	ip   netip.Addr
}

type topicKind uint8

const (
	topicService topicKind = iota
	topicEndpoints
	topicAddress
	topicNode
	topicProfile
	topicCluster
)

// Service is the Service's own row and the TrafficSplits of it.
func Service(key string) Topic { return Topic{kind: topicService, key: key} }

// Endpoints is the Service's row, its endpoints, and all that is joined to them.
func Endpoints(key string) Topic { return Topic{kind: topicEndpoints, key: key} }

// Address is whatever can be found at an IP.
func Address(ip netip.Addr) Topic { return Topic{kind: topicAddress, ip: ip} }

// Node is one machine's zone.
func Node(name string) Topic { return Topic{kind: topicNode, key: name} }

// Profile is one ServiceProfile, by its key.
func Profile(key string) Topic { return Topic{kind: topicProfile, key: key} }

// Linked is how a linked cluster can be read: no row says so, Touch does.
func Linked(cluster string) Topic { return Topic{kind: topicCluster, key: cluster} }

// Touch wakes the watches of a topic of which no row of this table tells.
func (t *Table) Touch(name Topic) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cuts++
	d := t.dirty()
	d.add(name)
	t.wake(d, &Change{})
}

// topic exists only while somebody watches it.
type topic struct {
	of   *Table
	name Topic
	// version is the cut that last made it dirty, or that it was made in.
	version uint64
	watches map[*Watch]struct{}
}

// Change is where a change comes from, to be followed and timed.
type Change struct {
	ObservedAt time.Time
	Trace      trace.SpanContext
	// traced counts the streams that drew spans for it.
	traced atomic.Int32
}

// maxTraced is how many streams draw spans for one change: ten thousand proxies
// that are told of it show nothing more, and would flood the collector.
const maxTraced = 16

// Follow reports whether the caller should draw spans for this change.
func (c *Change) Follow() bool {
	return c.Trace.IsValid() && c.Trace.IsSampled() && c.traced.Add(1) <= maxTraced
}

// Waker is told of a change. The table is locked meanwhile: Wake must neither
// block nor read the table.
type Waker interface{ Wake() }

// Watch is told when any of its topics becomes dirty. It holds at most one
// pending wake-up: a slow watcher finds the newest state, not a backlog. Topics
// may be of several tables (this cluster's and linked ones'), and change with
// what an answer turns out to read. One goroutine uses a Watch.
//
// The zero value watches nothing and tells nobody. Every stream has one for as
// long as it lives, so it is small.
type Watch struct {
	waker   Waker
	on      []*topic
	pending atomic.Pointer[Change]
}

// Tell says who is told. It comes before the first Follow.
func (w *Watch) Tell(waker Waker) { w.waker = waker }

// Signal is a Waker for who waits: C has a value after a change.
type Signal struct {
	Watch
	C chan struct{}
}

// NewSignal makes a watch of nothing that is told by C.
func NewSignal() *Signal {
	s := &Signal{C: make(chan struct{}, 1)}
	s.Tell(s)
	return s
}

// Wake implements Waker.
func (s *Signal) Wake() {
	select {
	case s.C <- struct{}{}:
	default: // already awake
	}
}

// Watch begins to watch. Reading after Watch has returned misses nothing.
func (t *Table) Watch(topics ...Topic) *Signal {
	s := NewSignal()
	s.Follow(t, topics...)
	return s
}

// Follow makes these the topics that are watched of a table; of other tables they
// stay. Reading after it has returned misses nothing.
func (w *Watch) Follow(t *Table, topics ...Topic) {
	others, same := w.follows(t, topics)
	if same {
		return
	}
	on := make([]*topic, 0, others+len(topics))
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range topics {
		entry := t.topics[name]
		if entry == nil {
			entry = &topic{of: t, name: name, version: t.cuts, watches: make(map[*Watch]struct{}, 1)}
			t.topics[name] = entry
		}
		entry.watches[w] = struct{}{}
		on = append(on, entry)
	}
	for _, entry := range w.on {
		switch {
		case entry.of != t:
			on = append(on, entry)
		case !slices.Contains(topics, entry.name):
			entry.unwatch(w)
		}
	}
	w.on = on
}

// follows counts what is watched of other tables, and tells whether these are the
// topics of this one, in this order.
func (w *Watch) follows(t *Table, topics []Topic) (others int, same bool) {
	n, same := 0, true
	for _, entry := range w.on {
		switch {
		case entry.of != t:
			others++
		case n < len(topics) && entry.name == topics[n]:
			n++
		default:
			same = false
		}
	}
	return others, same && n == len(topics)
}

// Only stops watching tables other than these.
func (w *Watch) Only(tables ...*Table) {
	for i := 0; i < len(w.on); {
		if of := w.on[i].of; !slices.Contains(tables, of) {
			w.Follow(of) // which takes its topics out
			i = 0
			continue
		}
		i++
	}
}

// Close ends the watch and forgets topics that nobody else watches.
func (w *Watch) Close() { w.Only() }

// unwatch forgets a topic with its last watch. The lock of its table is held.
func (e *topic) unwatch(w *Watch) {
	delete(e.watches, w)
	if len(e.watches) == 0 {
		delete(e.of.topics, e.name)
	}
}

// Take returns the oldest change since the last Take, nil if there was none.
func (w *Watch) Take() *Change { return w.pending.Swap(nil) }

// dirty collects what one cut made dirty, of that which somebody watches: the
// first cut of a large cluster touches half a million topics, all unwatched.
type dirty struct {
	watched    map[Topic]*topic
	topics     map[Topic]struct{}
	namespaces map[string]struct{}
}

// dirty starts a collection. The lock is held, so what is watched stays.
func (t *Table) dirty() *dirty {
	return &dirty{watched: t.topics, topics: make(map[Topic]struct{})}
}

func (d *dirty) add(name Topic) {
	if d.watched[name] != nil {
		d.topics[name] = struct{}{}
	}
}

// servers marks a namespace whose Servers changed.
func (d *dirty) servers(namespace string) {
	if d.namespaces == nil {
		d.namespaces = make(map[string]struct{}, 1)
	}
	d.namespaces[namespace] = struct{}{}
}

// wake tells the watches of dirty topics. Nothing here blocks.
func (t *Table) wake(d *dirty, c *Change) {
	for name := range d.topics {
		t.tell(t.topics[name], c)
	}
	if len(d.namespaces) == 0 {
		return
	}
	// Servers change by hand, a few times a day: walking the watched topics then
	// is cheaper than an index kept for each of them.
	for name, entry := range t.topics {
		if t.readsServers(name, d.namespaces) {
			t.tell(entry, c)
		}
	}
}

func (t *Table) tell(entry *topic, c *Change) {
	entry.version = t.cuts
	for w := range entry.watches {
		w.pending.CompareAndSwap(nil, c)
		if w.waker != nil {
			w.waker.Wake()
		}
	}
}

// readsServers reports whether an answer on this topic reads Servers of one of
// the namespaces.
func (t *Table) readsServers(name Topic, namespaces map[string]struct{}) bool {
	switch name.kind {
	case topicEndpoints:
		s := t.services[name.key]
		if s == nil {
			return false
		}
		parts := bus.Parts(name.key)
		_, own := namespaces[parts[0]]
		return own || s.elsewhere > 0
	case topicAddress:
		for _, in := range []index[*workload]{t.podIPs, t.hostIPs, t.external} {
			for w := range in.at(name.ip) {
				if _, hit := namespaces[w.row.Namespace]; hit {
					return true
				}
			}
		}
	}
	return false
}

// Watched is the number of topics somebody watches.
func (t *Table) Watched() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.topics)
}
