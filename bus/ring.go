package bus

// The ring bounds what past a peer can answer for: at 20 changes a second about
// an hour, in a storm the last seconds; beyond it a snapshot is cheaper anyway
// (BUS.md section 8).
const (
	ringBytes   = 32 << 20
	ringBatches = 65536
)

// entry is one past cut, as it was sent.
type entry struct {
	seq   uint64
	parts [][]byte
	trace string
	size  int
}

// ring holds the newest cuts of one epoch, without a hole. Entries are
// immutable.
type ring struct {
	entries []entry // a queue: entries[head] is the oldest
	head    int
	bytes   int
}

func (r *ring) len() int { return len(r.entries) - r.head }

func (r *ring) reset() { *r = ring{} }

// add appends the next cut and drops the oldest beyond the bounds.
func (r *ring) add(e entry) {
	e.size = 0
	for _, p := range e.parts {
		e.size += len(p)
	}
	r.entries = append(r.entries, e)
	r.bytes += e.size
	for r.len() > 0 && (r.bytes > ringBytes || r.len() > ringBatches) {
		r.bytes -= r.entries[r.head].size
		r.entries[r.head] = entry{}
		r.head++
	}
	if r.head > 1024 && r.head > len(r.entries)/2 {
		r.entries = append([]entry(nil), r.entries[r.head:]...)
		r.head = 0
	}
}

// from copies the cuts from seq on, oldest first, at most n; left is the size of
// all from seq to the end. ok is false when the ring begins after seq.
func (r *ring) from(seq uint64, n int) (entries []entry, left int, ok bool) {
	live := r.entries[r.head:]
	if len(live) == 0 || live[0].seq > seq || seq > live[len(live)-1].seq {
		return nil, 0, false
	}
	live = live[seq-live[0].seq:]
	left = r.bytes
	for _, e := range r.entries[r.head : len(r.entries)-len(live)] {
		left -= e.size
	}
	return append(entries, live[:min(n, len(live))]...), left, true
}
