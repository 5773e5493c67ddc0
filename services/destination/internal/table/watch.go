package table

import (
	"net/netip"
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
)

// Service is the Service's own row.
func Service(key string) Topic { return Topic{kind: topicService, key: key} }

// Endpoints is the Service's row, its endpoints, and all that is joined to them.
func Endpoints(key string) Topic { return Topic{kind: topicEndpoints, key: key} }

// Address is whatever can be found at an IP.
func Address(ip netip.Addr) Topic { return Topic{kind: topicAddress, ip: ip} }

// Node is one machine's zone.
func Node(name string) Topic { return Topic{kind: topicNode, key: name} }

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
// pending wake-up: a slow watcher finds the newest state, not a backlog.
type Watch struct {
	C       <-chan struct{}
	c       chan struct{}
	t       *Table
	topics  []Topic
	pending atomic.Pointer[Change]
}

// Watch begins to watch. Reading after Watch has returned misses nothing.
func (t *Table) Watch(topics ...Topic) *Watch {
	c := make(chan struct{}, 1)
	w := &Watch{C: c, c: c, t: t, topics: topics}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range topics {
		entry := t.topics[name]
		if entry == nil {
			entry = &topic{version: t.cuts, watches: make(map[*Watch]struct{}, 1)}
			t.topics[name] = entry
		}
		entry.watches[w] = struct{}{}
	}
	return w
}

// Close ends the watch and forgets topics that nobody else watches.
func (w *Watch) Close() {
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	for _, name := range w.topics {
		entry := w.t.topics[name]
		if entry == nil {
			continue
		}
		delete(entry.watches, w)
		if len(entry.watches) == 0 {
			delete(w.t.topics, name)
		}
	}
	w.topics = nil
}

// Take returns the oldest change since the last Take, nil if there was none.
func (w *Watch) Take() *Change { return w.pending.Swap(nil) }

// dirty collects what one cut made dirty.
type dirty struct {
	topics     map[Topic]struct{}
	namespaces map[string]struct{}
}

func (d *dirty) add(name Topic) { d.topics[name] = struct{}{} }

// servers marks a namespace whose Servers changed.
func (d *dirty) servers(namespace string) {
	if d.namespaces == nil {
		d.namespaces = make(map[string]struct{}, 1)
	}
	d.namespaces[namespace] = struct{}{}
}

// dirtyWorkload marks every topic through which the workload can be seen.
func (t *Table) dirtyWorkload(w *workload, d *dirty) {
	for _, u := range w.services {
		d.add(Endpoints(u.service))
	}
	for _, at := range w.indexed {
		d.add(Address(at.at))
	}
}

// wake tells the watches of dirty topics. Sends never block.
func (t *Table) wake(d *dirty, c *Change) {
	for name := range d.topics {
		if entry := t.topics[name]; entry != nil {
			t.tell(entry, c)
		}
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
		for _, in := range []index{t.podIPs, t.hostIPs, t.external} {
			for _, key := range in[name.ip] {
				if _, hit := namespaces[t.workloads[key].row.Namespace]; hit {
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
