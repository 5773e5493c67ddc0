package bus

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Cut is a set of changes that belong together: after it, the consumer holds a
// state that the writer held at Epoch and Seq.
type Cut struct {
	Epoch, Seq uint64
	// Changes has one entry a row, in the order of Tables, then by key; removals
	// come after, tables in the opposite order. Apply all or none.
	Changes []Change
	// Complete means that Changes is the whole state: rows not in it are gone.
	// Only the first cut of a Read is complete.
	Complete bool
	// ObservedAt is when the source saw the oldest change of this cut; zero when
	// nobody knows.
	ObservedAt time.Time
	// Trace is the span that applied the newest change of this cut.
	Trace trace.SpanContext
}

type rowID struct {
	table busv1.Table
	key   string
}

// outbox is the depth-one hand-over to the consumer: what it has not taken yet
// is one merged cut, bounded by the number of rows, however slow it is.
type outbox struct {
	mu sync.Mutex
	// attached: somebody reads.
	attached bool
	// complete: the next cut is the whole state, so changes needn't be kept.
	complete bool
	// state is the whole state at stateAt, if it need not be read from the store;
	// pending is then what came after it.
	state   []Change
	stateAt position
	synced  bool
	pending map[rowID][]byte
	waiting bool
	at      position
	// idle: the consumer has done all that it was given; consumed is how far.
	idle     bool
	consumed position
	observed time.Time
	trace    trace.SpanContext
	// ready has room for one: "look again".
	ready chan struct{}
}

func newOutbox() *outbox { return &outbox{ready: make(chan struct{}, 1)} }

// attach makes the caller the consumer and reports whether it could.
func (o *outbox) attach() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.attached {
		return false
	}
	o.attached, o.complete = true, true
	o.wake()
	return true
}

func (o *outbox) detach() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attached, o.complete, o.waiting, o.idle = false, false, false, false
	o.pending, o.state = nil, nil
}

// offer spares a consumer that waits for the first state the reading of it. The
// store's lock is held.
func (o *outbox) offer(at position, state []Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.attached && o.complete && !o.synced && len(state) > 0 {
		o.state, o.stateAt = state, at
	}
}

// add merges one applied cut. The store's lock is held, so cuts come in order.
func (o *outbox) add(at position, changes []Change, observed time.Time, sc trace.SpanContext) {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := !o.synced
	o.synced = true
	o.at = at
	if !o.attached {
		return
	}
	if o.complete {
		if first {
			o.wake()
		}
		if first || o.state == nil {
			return
		}
	}
	if len(changes) == 0 {
		if o.idle && !o.waiting {
			o.consumed = at // which takes nothing
		}
		return
	}
	if o.pending == nil {
		o.pending = make(map[rowID][]byte, len(changes))
	}
	for _, c := range changes {
		o.pending[rowID{c.Table, c.Key}] = c.Value
	}
	if !observed.IsZero() && (o.observed.IsZero() || observed.Before(o.observed)) {
		o.observed = observed
	}
	if sc.IsValid() {
		o.trace = sc
	}
	o.waiting = true
	o.wake()
}

func (o *outbox) wake() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// take gives the next cut, if there is one. The caller sorts and, when complete
// is set, asks the store for the rows; the store's lock is held if it may be.
func (o *outbox) take() (cut Cut, pending map[rowID][]byte, ok bool) {
	if !o.synced || (!o.complete && !o.waiting) {
		if o.synced {
			o.idle, o.consumed = true, o.at
		}
		return Cut{}, nil, false
	}
	o.idle = false
	if o.complete && o.state != nil {
		cut = Cut{Epoch: o.stateAt.epoch, Seq: o.stateAt.seq, Complete: true, Changes: o.state}
		o.complete, o.state = false, nil
		return cut, nil, true
	}
	cut = Cut{Epoch: o.at.epoch, Seq: o.at.seq, Complete: o.complete, ObservedAt: o.observed, Trace: o.trace}
	pending = o.pending
	o.complete, o.waiting = false, false
	o.pending = nil
	o.observed = time.Time{}
	o.trace = trace.SpanContext{}
	return cut, pending, true
}

func inOrder(pending map[rowID][]byte) []Change {
	changes := make([]Change, 0, len(pending))
	for id, value := range pending {
		changes = append(changes, Change{id.table, id.key, value})
	}
	sortChanges(changes)
	return changes
}

// sortChanges puts changes in the order that Cut documents.
func sortChanges(changes []Change) {
	slices.SortFunc(changes, func(a, b Change) int {
		switch {
		case a.Value != nil && b.Value == nil:
			return -1
		case a.Value == nil && b.Value != nil:
			return 1
		case a.Table != b.Table:
			order := cmp.Compare(tableRank(a.Table), tableRank(b.Table))
			if a.Value == nil {
				return -order
			}
			return order
		}
		return strings.Compare(a.Key, b.Key)
	})
}

// Consumed tells how far the consumer of Read has come: it has done with every
// change up to there. Cuts alone do not tell, since a batch that changes nothing
// here, such as the first of a new writer, makes none. Zero before the first
// cut.
func (r *Reader) Consumed() (epoch, seq uint64) {
	o := r.store.out
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.consumed.epoch, o.consumed.seq
}
