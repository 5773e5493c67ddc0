package bus

import (
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/trace"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// at makes a reader that stands at a position and talks to nobody.
func at(p position, rows ...Change) *Reader {
	r := &Reader{t: noTransport{}, store: newStore(nil), cfg: ReaderConfig{Now: nowhen}, metrics: newMetrics(nil, "local")}
	r.newest.Store(&position{})
	r.store.replace(p, rows, trace.SpanContext{})
	r.saw(p)
	return r
}

func rangeFrom(first uint64, n int) []*busv1.LogEntry {
	var out []*busv1.LogEntry
	for i := range uint64(n) {
		body := pack(encodeBatch([]Change{put(1, fmt.Sprint("from-", first+i), "x")}, 0))
		out = append(out, &busv1.LogEntry{Seq: first + i, Body: body})
	}
	return out
}

func TestRangeOfANewEpochNeedsItsPredecessor(t *testing.T) {
	for _, tc := range []struct {
		name       string
		now, asked position
		epoch      uint64
		first      uint64
		want       position
	}{
		{"the missing end", position{5, 100}, position{5, 100}, 5, 101, position{5, 103}},
		{"some came meanwhile", position{5, 102}, position{5, 100}, 5, 101, position{5, 103}},
		{"all came meanwhile", position{5, 110}, position{5, 100}, 5, 101, position{5, 110}},
		{"a range that begins later", position{5, 100}, position{5, 100}, 5, 102, position{5, 100}},
		{"the next epoch", position{5, 100}, position{5, 100}, 6, 101, position{6, 103}},
		{"an old leader wrote meanwhile", position{5, 101}, position{5, 100}, 6, 101, position{5, 101}},
		{"an epoch that has ended", position{6, 100}, position{6, 100}, 5, 101, position{6, 100}},
	} {
		r := at(tc.now)
		if err := r.applyRange(tc.epoch, tc.asked, rangeFrom(tc.first, 3)); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got := r.store.pos; got != tc.want {
			t.Errorf("%s: at %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestUnreadableRangeIsAnErrorAndNeedsASnapshot(t *testing.T) {
	r := at(position{5, 100})
	entries := rangeFrom(101, 2)
	entries[1].Body = []byte{0, 0xff}
	if err := r.applyRange(5, position{5, 100}, entries); err == nil {
		t.Error("applyRange() = nil error")
	}
	if r.store.pos != (position{5, 101}) || !r.run.corrupt {
		t.Errorf("at %v, corrupt %v, want what was readable and a snapshot", r.store.pos, r.run.corrupt)
	}
	var endless []*busv1.LogEntry
	for range maxParts + 2 {
		endless = append(endless, &busv1.LogEntry{Seq: 102, More: true})
	}
	if err := at(position{5, 101}).applyRange(5, position{5, 101}, endless); err == nil {
		t.Error("a cut of endless parts is no error")
	}
}

// TestSnapshotBelowTheCopy: a digest heals under what was applied since.
func TestSnapshotBelowTheCopy(t *testing.T) {
	r := at(position{5, 10}, put(1, "a", "0"), put(1, "lost", "0"))
	s := r.store
	for seq := uint64(11); seq <= 14; seq++ {
		c := []Change{put(1, "a", fmt.Sprint(seq)), {1, fmt.Sprint("not-", seq), nil}}
		s.apply(cut{at: position{5, seq}, changes: c, entry: entry{seq: seq, parts: [][]byte{pack(encodeBatch(c, 0))}}})
	}
	s.put(Change{1, "lost", nil})
	snap := []Change{put(1, "a", "12"), put(1, "lost", "0"), put(1, "not-13", "gone later")}
	res := repaired{reason: busv1.Reason_REASON_DIGEST, state: snap}
	if err := r.applySnapshot(position{5, 12}, &busv1.Manifest{}, res); err == nil {
		t.Error("a snapshot of the past is applied to a sound copy")
	}
	r.run.corrupt = true
	if err := r.applySnapshot(position{4, 12}, &busv1.Manifest{}, res); err == nil {
		t.Error("a snapshot of an old epoch is applied")
	}
	if err := r.applySnapshot(position{5, 12}, &busv1.Manifest{}, res); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range s.all() {
		got[c.Key] = string(c.Value)
	}
	if fmt.Sprint(got) != "map[a:14 lost:0]" || s.pos != (position{5, 14}) || r.run.corrupt {
		t.Errorf("healed to %v at %v, want a=14 and lost=0 at 14", got, s.pos)
	}
	if _, _, ok := s.ring.from(11, 10); !ok {
		t.Error("the ring is gone though nothing in it was wrong")
	}
	r.run.corrupt = true
	if err := r.applySnapshot(position{5, 3}, &busv1.Manifest{}, res); err == nil {
		t.Error("a snapshot that the ring doesn't reach back to is applied")
	}
}

func TestHealingSlowsDown(t *testing.T) {
	r := at(position{5, 10})
	if !r.mayHeal() {
		t.Error("the first heal waits")
	}
	r.run.heals, r.run.healedAt = 1, nowhen()
	if r.mayHeal() {
		t.Error("the second heal doesn't wait")
	}
	for heals, want := range map[int]int64{1: 5, 2: 10, 3: 20, 50: 300} {
		r.run.heals = heals
		r.run.healedAt = nowhen().Add(-healAgain * 100)
		if !r.mayHeal() {
			t.Errorf("after %d heals not even 500 s are enough, want %d", heals, want)
		}
	}
}

func TestHeldIsBoundedByDroppingIt(t *testing.T) {
	var h held
	for seq := range uint64(100) {
		it := item{head{position: position{5, seq + 10}}, make([]byte, 100)}
		if !h.add(it) || h.add(it) {
			t.Fatal("a part is new once")
		}
	}
	if want := 100 * (100 + itemCost); h.bytes != want {
		t.Errorf("%d bytes held, want %d", h.bytes, want)
	}
	h.drop(position{5, 50})
	if len(h.cuts) != 59 {
		t.Errorf("%d cuts held after dropping up to 50, want 59", len(h.cuts))
	}
	if _, _, ok := h.after(position{5, 49}); ok {
		t.Error("a cut follows 49, where there is a hole")
	}
	if p, _, ok := h.after(position{5, 50}); !ok || p.seq != 51 {
		t.Errorf("after 50 comes %v, %v", p, ok)
	}
	h.drop(position{6, 0})
	if h.bytes != 0 || len(h.cuts) != 0 {
		t.Errorf("%d bytes, %d cuts held after dropping all", h.bytes, len(h.cuts))
	}
}

func TestInboxIsBoundedAndSaysWhatItLost(t *testing.T) {
	in := newInbox()
	for seq := uint64(1); seq <= 20; seq++ {
		in.push(item{head{position: position{5, seq}}, make([]byte, 1<<20)})
	}
	items, news := in.take()
	if !news.overflow || news.lost.seq == 0 {
		t.Fatalf("20 MiB in a queue of 8: %+v", news)
	}
	for i, it := range items {
		if it.head.seq != news.lost.seq+1+uint64(i) {
			t.Errorf("item %d is %d, lost up to %d", i, it.head.seq, news.lost.seq)
		}
	}
	if items, news := in.take(); len(items) > 0 || news.overflow {
		t.Error("what was taken is still there")
	}
}
