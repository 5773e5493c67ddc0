package hpack

// table is a dynamic table: a ring of entries, newest at index 1. Entries have
// numbers that never change, from 1 in the order of insertion.
type table struct {
	ring  []pair // its length is a power of two, or 0
	added uint64 // the number of the newest entry
	count int
	size  int // as RFC 7541 §4.1 counts, in bytes
	max   int
}

// ref is the entry with a number, if it is still there, else nil.
func (t *table) ref(number uint64) *pair {
	if number == 0 || number > t.added || t.added-number >= uint64(t.count) {
		return nil
	}
	return &t.ring[number&uint64(len(t.ring)-1)]
}

// at is ref for those who need a copy.
func (t *table) at(number uint64) (pair, bool) {
	if p := t.ref(number); p != nil {
		return *p, true
	}
	return pair{}, false
}

// index is the entry's place counted from the newest, which is 1.
func (t *table) index(number uint64) int { return int(t.added-number) + 1 } // no more than count

// get returns the entry at an index.
func (t *table) get(index int) (pair, bool) {
	if index < 1 || index > t.count {
		return pair{}, false
	}
	return t.at(t.added - uint64(index) + 1)
}

// add inserts an entry, and drops old ones to make room. One that is larger than
// the whole table empties it, as the RFC says.
func (t *table) add(p pair) {
	size := p.size()
	t.evict(t.max - size)
	if size > t.max {
		return
	}
	if t.count == len(t.ring) {
		t.grow()
	}
	t.added++
	t.ring[t.added&uint64(len(t.ring)-1)] = p
	t.count++
	t.size += size
}

func (t *table) grow() {
	ring := make([]pair, max(8, 2*len(t.ring)))
	for i := range t.count {
		number := t.added - uint64(i)
		ring[number&uint64(len(ring)-1)] = t.ring[number&uint64(len(t.ring)-1)]
	}
	t.ring = ring
}

// evict drops entries until the size is no more than most.
func (t *table) evict(most int) {
	for t.count > 0 && t.size > most {
		oldest := &t.ring[(t.added-uint64(t.count)+1)&uint64(len(t.ring)-1)]
		t.size -= oldest.size()
		*oldest = pair{}
		t.count--
	}
}

func (t *table) resize(most int) {
	t.max = most
	t.evict(most)
	if t.count == 0 {
		t.ring = nil // an idle connection keeps nothing of a table that was emptied
	}
}
