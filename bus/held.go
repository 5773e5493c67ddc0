package bus

// heldBytes bounds what waits for a hole before it to be filled.
const heldBytes = 16 << 20

// held keeps the cuts that can't be applied yet: parts of a cut that are still
// coming, and everything after a hole.
type held struct {
	cuts  map[position]*assembly
	bytes int
}

// assembly is one cut, in as many parts as have come.
type assembly struct {
	parts [][]byte
	have  int
	// total is known once the last part has come; else 0.
	total int
	prev  position
	trace string
}

func (a *assembly) complete() bool { return a.total > 0 && a.have == a.total }

// add keeps one part; false means that it was there already.
func (h *held) add(it item) bool {
	if h.cuts == nil {
		h.cuts = map[position]*assembly{}
	}
	a := h.cuts[it.head.position]
	if a == nil {
		a = &assembly{}
		h.cuts[it.head.position] = a
	}
	for len(a.parts) <= it.head.part {
		a.parts = append(a.parts, nil)
	}
	if a.parts[it.head.part] != nil {
		return false
	}
	a.parts[it.head.part] = it.body
	a.have++
	if !it.head.more {
		a.total = it.head.part + 1
	}
	if it.head.prev != (position{}) {
		a.prev = it.head.prev
	}
	if it.head.trace != "" {
		a.trace = it.head.trace
	}
	h.bytes += len(it.body) + itemCost
	return true
}

// after takes the cut that follows at, if it is complete: the next sequence, or
// the first cut of an epoch that began exactly there.
func (h *held) after(at position) (position, *assembly, bool) {
	next := position{at.epoch, at.seq + 1}
	if a := h.cuts[next]; a != nil && a.complete() {
		h.remove(next)
		return next, a, true
	}
	for p, a := range h.cuts {
		if p.epoch > at.epoch && a.prev == at && at != (position{}) && a.complete() {
			h.remove(p)
			return p, a, true
		}
	}
	return position{}, nil, false
}

func (h *held) remove(p position) {
	for _, part := range h.cuts[p].parts {
		if part != nil {
			h.bytes -= len(part) + itemCost
		}
	}
	delete(h.cuts, p)
}

// drop forgets what is at or before a position.
func (h *held) drop(at position) {
	for p := range h.cuts {
		if !at.before(p) {
			h.remove(p)
		}
	}
}

func (h *held) clear() { h.cuts, h.bytes = nil, 0 }
