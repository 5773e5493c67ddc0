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

// Watch is told when any of its topics becomes dirty. It holds at most one
// pending wake-up: a slow watcher finds the newest state, not a backlog. Topics
// may be of several tables (this cluster's and linked ones'), and change with
// what an answer turns out to read. One goroutine uses a Watch.
type Watch struct {
	C       <-chan struct{}
	c       chan struct{}
	wake    func()
	on      []watched
	pending atomic.Pointer[Change]
}

// watched is what is watched of one table.
type watched struct {
	t      *Table
	topics []Topic
}

// NewWatch makes a watch of nothing, which is told by C.
func NewWatch() *Watch {
	c := make(chan struct{}, 1)
	return &Watch{C: c, c: c}
}

// NewWatchFunc makes a watch of nothing, which is told by calls of wake; C is nil.
// The table is locked while wake runs: it must neither block nor read the table.
func NewWatchFunc(wake func()) *Watch { return &Watch{wake: wake} }

// Watch begins to watch. Reading after Watch has returned misses nothing.
func (t *Table) Watch(topics ...Topic) *Watch {
	w := NewWatch()
	w.Follow(t, topics...)
	return w
}

// Follow makes these the topics that are watched of a table; of other tables they
// stay. Reading after it has returned misses nothing.
func (w *Watch) Follow(t *Table, topics ...Topic) {
	i := slices.IndexFunc(w.on, func(o watched) bool { return o.t == t })
	var old []Topic
	if i >= 0 {
		old = w.on[i].topics
	}
	if slices.Equal(old, topics) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range topics {
		if slices.Contains(old, name) {
			continue
		}
		entry := t.topics[name]
		if entry == nil {
			entry = &topic{version: t.cuts, watches: make(map[*Watch]struct{}, 1)}
			t.topics[name] = entry
		}
		entry.watches[w] = struct{}{}
	}
	for _, name := range old {
		if !slices.Contains(topics, name) {
			t.unwatch(name, w)
		}
	}
	switch {
	case i < 0:
		w.on = append(w.on, watched{t, topics})
	case len(topics) == 0:
		w.on = slices.Delete(w.on, i, i+1)
	default:
		w.on[i].topics = topics
	}
}

// Only stops watching tables other than these.
func (w *Watch) Only(tables ...*Table) {
	for _, o := range slices.Clone(w.on) {
		if !slices.Contains(tables, o.t) {
			w.Follow(o.t)
		}
	}
}

// Close ends the watch and forgets topics that nobody else watches.
func (w *Watch) Close() { w.Only() }

// unwatch forgets a topic with its last watch. The lock is held.
func (t *Table) unwatch(name Topic, w *Watch) {
	entry := t.topics[name]
	if entry == nil {
		return
	}
	delete(entry.watches, w)
	if len(entry.watches) == 0 {
		delete(t.topics, name)
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
		if w.wake != nil {
			w.wake()
			continue
		}
		select {
		case w.c <- struct{}{}:
		default: // already awake
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
