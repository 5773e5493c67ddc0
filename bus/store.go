package bus

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// row is one row as the store keeps it. Key and value never change, so a
// snapshot may be built from them without the lock; hash and seen belong to the
// store.
type row struct {
	key   string
	value []byte
	hash  sum128
	// seen is the last replace whose state had the row.
	seen uint64
}

type rows struct {
	byKey map[string]*row
	sum   sum128
}

// store is one process's copy of the log: the rows, the recent past, and where
// the consumer stands. Reader and Writer share one; whoever holds mu is the log.
type store struct {
	mu sync.Mutex
	// only are the tables kept; it never changes.
	only   only
	tables map[busv1.Table]*rows
	// bytes is the size of all keys and values.
	bytes int
	count int
	pos   position
	// prev is where the epoch before pos.epoch ended, when the ring reaches back
	// to the first cut of this epoch.
	prev   position
	synced bool
	// leading is the epoch that this process's writer holds; 0 for none.
	leading uint64
	// keyed says that key is the one of pos.epoch and the sums are of it.
	keyed bool
	key   [digestKeySize]byte
	hash  *hasher
	// replaced counts calls of replace.
	replaced uint64
	ring     ring
	out      *outbox
}

func newStore(only only) *store {
	s := &store{only: only, tables: map[busv1.Table]*rows{}, out: newOutbox()}
	s.hash = newHasher(s.key)
	return s
}

func (s *store) table(t busv1.Table) *rows {
	r := s.tables[t]
	if r == nil {
		r = &rows{byKey: map[string]*row{}}
		s.tables[t] = r
	}
	return r
}

// put applies one change and reports whether it changed anything.
func (s *store) put(c Change) bool {
	t := s.table(c.Table)
	old := t.byKey[c.Key]
	if c.Value == nil {
		if old == nil {
			return false
		}
		delete(t.byKey, c.Key)
		t.sum = t.sum.minus(old.hash)
		s.bytes -= len(old.key) + len(old.value)
		s.count--
		return true
	}
	if old != nil {
		if bytes.Equal(old.value, c.Value) {
			old.seen = s.replaced
			return false
		}
		t.sum = t.sum.minus(old.hash)
		s.bytes -= len(old.key) + len(old.value)
		s.count--
	}
	n := &row{key: c.Key, value: c.Value, seen: s.replaced}
	if s.keyed {
		n.hash = s.hash.row(c.Table, c.Key, c.Value)
		t.sum = t.sum.plus(n.hash)
	}
	t.byKey[c.Key] = n
	s.bytes += len(n.key) + len(n.value)
	s.count++
	return true
}

// differs says whether a change would change anything.
func (s *store) differs(c Change) bool {
	t := s.tables[c.Table]
	if t == nil {
		return c.Value != nil
	}
	old := t.byKey[c.Key]
	if c.Value == nil || old == nil {
		return (c.Value == nil) != (old == nil)
	}
	return !bytes.Equal(old.value, c.Value)
}

// cut is one set of changes with what goes with it.
type cut struct {
	at       position
	changes  []Change
	observed time.Time
	trace    trace.SpanContext
	entry    entry
}

// apply makes the next cut part of the state. Its changes become the store's.
// The writer sent only what changed, so the consumer is told all of it: should
// the copy be damaged, what the consumer made of it would follow the writer.
func (s *store) apply(c cut) {
	if c.at.epoch != s.pos.epoch {
		s.prev = s.pos
		s.ring.reset()
	}
	for _, ch := range c.changes {
		s.put(ch)
	}
	s.pos = c.at
	if len(c.entry.parts) > 0 {
		s.ring.add(c.entry)
	} else {
		s.forget()
	}
	s.out.add(c.at, c.changes, c.observed, c.trace)
}

// forget empties the past: what comes next does not follow what was there.
func (s *store) forget() {
	s.ring.reset()
	s.prev = position{}
}

// become makes state all that there is inside: rows that stay equal are kept,
// and what really changed is returned.
func (s *store) become(state []Change, inside func(t busv1.Table, key string) bool) []Change {
	s.replaced++
	var diff []Change
	for _, c := range state {
		if s.put(c) {
			diff = append(diff, c)
		}
	}
	kept := len(diff)
	for t, r := range s.tables {
		for key, row := range r.byKey {
			if row.seen != s.replaced && inside(t, key) {
				diff = append(diff, Change{Table: t, Key: key})
			}
		}
	}
	for _, c := range diff[kept:] {
		s.put(c)
	}
	return diff
}

// replace makes rows the whole state at a position, as a diff: the consumer
// sees only what really changed.
func (s *store) replace(at position, state []Change, sc trace.SpanContext) {
	diff := s.become(state, func(busv1.Table, string) bool { return true })
	s.pos = at
	s.forget()
	s.synced = true
	s.out.add(at, diff, time.Time{}, sc)
}

// rekey makes the sums those of another digest key: 80 ms for 175,000 rows,
// once an epoch (BUS.md section 2).
func (s *store) rekey(key [digestKeySize]byte) {
	if s.keyed && s.key == key {
		return
	}
	s.key, s.keyed = key, true
	s.hash = newHasher(key)
	for t, r := range s.tables {
		r.sum = sum128{}
		for _, row := range r.byKey {
			row.hash = s.hash.row(t, row.key, row.value)
			r.sum = r.sum.plus(row.hash)
		}
	}
}

// sums is the state of every table that has rows, in order of their numbers.
func (s *store) sums() []*busv1.Sum {
	out := make([]*busv1.Sum, 0, len(s.tables))
	for t, r := range s.tables {
		if len(r.byKey) == 0 {
			continue
		}
		out = append(out, &busv1.Sum{Table: t, Rows: uint64(len(r.byKey)), High: r.sum.high, Low: r.sum.low})
	}
	slices.SortFunc(out, func(a, b *busv1.Sum) int { return int(a.GetTable()) - int(b.GetTable()) })
	return out
}

// mismatches names the tables whose sums are not the wanted ones.
func (s *store) mismatches(want []*busv1.Sum) []busv1.Table {
	var bad []busv1.Table
	seen := make(map[busv1.Table]bool, len(want))
	for _, w := range want {
		if !s.only.keeps(w.GetTable()) {
			continue
		}
		seen[w.GetTable()] = true
		r := s.tables[w.GetTable()]
		if r == nil {
			r = &rows{}
		}
		if uint64(len(r.byKey)) != w.GetRows() || r.sum != (sum128{w.GetHigh(), w.GetLow()}) {
			bad = append(bad, w.GetTable())
		}
	}
	for t, r := range s.tables {
		if !seen[t] && len(r.byKey) > 0 {
			bad = append(bad, t)
		}
	}
	slices.Sort(bad)
	return bad
}

// all copies the state, tables in order, their rows without: sortTables can
// come without the lock.
func (s *store) all() []Change {
	out := make([]Change, 0, s.count)
	for _, t := range slices.SortedFunc(maps.Keys(s.tables), byRank) {
		for _, row := range s.tables[t].byKey {
			out = append(out, Change{t, row.key, row.value})
		}
	}
	return out
}

func byRank(a, b busv1.Table) int { return tableRank(a) - tableRank(b) }

// sortTables orders the rows of each table in what all gave.
func sortTables(changes []Change) {
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].Table == changes[0].Table {
			n++
		}
		slices.SortFunc(changes[:n], func(a, b Change) int { return strings.Compare(a.Key, b.Key) })
		changes = changes[n:]
	}
}

// next gives the consumer's next cut, if there is one.
func (s *store) next() (Cut, bool) {
	s.mu.Lock()
	s.out.mu.Lock()
	cut, pending, ok := s.out.take()
	if ok && cut.Complete {
		cut.Changes = s.all()
	}
	s.out.mu.Unlock()
	s.mu.Unlock()
	if !ok {
		return Cut{}, false
	}
	if cut.Complete {
		sortTables(cut.Changes)
	} else {
		cut.Changes = inOrder(pending)
	}
	return cut, true
}
