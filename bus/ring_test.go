package bus

import (
	"testing"
)

func TestRingGivesWhatItHas(t *testing.T) {
	var r ring
	if _, _, ok := r.from(1, 10); ok {
		t.Error("an empty ring has seq 1")
	}
	for seq := uint64(5); seq <= 20; seq++ {
		r.add(entry{seq: seq, parts: [][]byte{make([]byte, 10)}})
	}
	for _, tc := range []struct {
		seq         uint64
		n           int
		first, last uint64
		left        int
		ok          bool
	}{
		{4, 100, 0, 0, 0, false},
		{5, 100, 5, 20, 160, true},
		{12, 3, 12, 14, 90, true},
		{20, 100, 20, 20, 10, true},
		{21, 100, 0, 0, 0, false},
		{1 << 60, 1, 0, 0, 0, false},
	} {
		got, left, ok := r.from(tc.seq, tc.n)
		if ok != tc.ok || left != tc.left {
			t.Errorf("from(%d) = %d left, %v, want %d, %v", tc.seq, left, ok, tc.left, tc.ok)
			continue
		}
		if ok && (got[0].seq != tc.first || got[len(got)-1].seq != tc.last) {
			t.Errorf("from(%d) = %d to %d, want %d to %d", tc.seq, got[0].seq, got[len(got)-1].seq, tc.first, tc.last)
		}
	}
}

func TestRingIsBounded(t *testing.T) {
	var r ring
	big := make([]byte, 1<<20)
	for seq := uint64(1); seq <= 100; seq++ {
		r.add(entry{seq: seq, parts: [][]byte{big}})
	}
	if r.bytes > ringBytes || r.len() != ringBytes>>20 {
		t.Errorf("ring of %d entries, %d bytes, want at most %d bytes", r.len(), r.bytes, ringBytes)
	}
	if got, _, ok := r.from(100, 10); !ok || got[0].seq != 100 {
		t.Error("the newest is gone")
	}
	r.reset()
	for seq := uint64(1); seq <= 3*ringBatches; seq++ {
		r.add(entry{seq: seq, parts: [][]byte{{1}}})
	}
	if r.len() != ringBatches || len(r.entries) > 2*ringBatches+2048 {
		t.Errorf("ring of %d entries in a slice of %d, want %d", r.len(), len(r.entries), ringBatches)
	}
	// One cut larger than the whole ring leaves it empty, not wrong.
	r.add(entry{seq: 3*ringBatches + 1, parts: [][]byte{make([]byte, ringBytes+1)}})
	if _, _, ok := r.from(3*ringBatches+1, 1); ok || r.len() != 0 || r.bytes != 0 {
		t.Errorf("ring of %d entries, %d bytes after one that doesn't fit", r.len(), r.bytes)
	}
}
