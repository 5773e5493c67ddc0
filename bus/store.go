package bus

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// row is one row as the store keeps it; its key is the map's. The store's lock
// guards it.
type row struct {
	hash sum128
	// in holds the value.
	in *block
	// size is the length of key and value.
	size uint32
	// seen is the last replace whose state had the row.
	seen uint32
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
	replaced uint32
	// plain are rows whose values wait to be packed, perhaps named twice or gone.
	plain      []rowID
	plainBytes int
	packAbove  int
	// sparse are packed blocks of which most is gone.
	sparse []*block
	ring   ring
	out    *outbox
}

func newStore(only only) *store {
	s := &store{only: only, tables: map[busv1.Table]*rows{}, packAbove: packAbove, out: newOutbox()}
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

func (s *store) row(t busv1.Table, key string) *row {
	if r := s.tables[t]; r != nil {
		return r.byKey[key]
	}
	return nil
}

// put applies one change and reports whether it changed anything. Equal hashes
// are equal rows: the key of the hash is nobody's to know.
func (s *store) put(c Change) bool {
	t := s.table(c.Table)
	r := t.byKey[c.Key]
	if c.Value == nil {
		if r == nil {
			return false
		}
		s.gone(t, r)
		delete(t.byKey, c.Key)
		return true
	}
	hash := s.hash.row(c.Table, c.Key, c.Value)
	switch {
	case r == nil:
		r = new(row)
		t.byKey[c.Key] = r
	case r.hash == hash:
		r.seen = s.replaced
		return false
	default:
		s.gone(t, r)
	}
	r.hash, r.seen, r.size = hash, s.replaced, uint32(len(c.Key)+len(c.Value))
	t.sum = t.sum.plus(hash)
	s.bytes += int(r.size)
	s.count++
	s.setPlain(r, rowID{c.Table, c.Key}, c.Value)
	return true
}

// gone takes a row out of the sums.
func (s *store) gone(t *rows, r *row) {
	t.sum = t.sum.minus(r.hash)
	s.bytes -= int(r.size)
	s.count--
	s.leave(r)
}

// leave takes a row's value out of its block.
func (s *store) leave(r *row) {
	if !r.in.packed() {
		s.plainBytes -= len(r.in.body)
		return
	}
	was := r.in.sparse()
	if r.in.live--; !was && r.in.sparse() {
		s.sparse = append(s.sparse, r.in)
	}
	r.in = nil
}

// setPlain gives a row its value and has it packed some time.
func (s *store) setPlain(r *row, id rowID, value []byte) {
	if r.in == nil { // else the list has it already
		s.plain = append(s.plain, id)
	}
	r.in = &block{body: value}
	s.plainBytes += len(value)
}

// differs says whether a change would change anything.
func (s *store) differs(c Change) bool {
	r := s.row(c.Table, c.Key)
	if c.Value == nil || r == nil {
		return (c.Value == nil) != (r == nil)
	}
	return r.hash != s.hash.row(c.Table, c.Key, c.Value)
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

// start is replace with a snapshot that was just pulled. A store that has never
// had anything takes it as it is, and so does the consumer, if it waits.
func (s *store) start(at position, state []Change, pieces []*piece, sc trace.SpanContext) {
	if s.synced || !s.keyed || !s.load(state, pieces) {
		s.replace(at, state, sc)
		return
	}
	s.pos = at
	s.forget()
	s.synced = true
	s.out.offer(at, state)
	s.out.add(at, nil, time.Time{}, sc)
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

// next gives the consumer's next cut, if there is one.
func (s *store) next() (Cut, bool) {
	s.mu.Lock()
	s.out.mu.Lock()
	cut, pending, ok := s.out.take()
	var all []rowAt
	if ok && cut.Complete && cut.Changes == nil {
		all = s.rowsAt()
	}
	s.out.mu.Unlock()
	s.mu.Unlock()
	if !ok {
		return Cut{}, false
	}
	switch {
	case cut.Changes != nil:
		cut.Changes = inTableOrder(cut.Changes)
	case cut.Complete:
		cut.Changes = s.changesOf(all)
	default:
		cut.Changes = inOrder(pending)
	}
	return cut, true
}
