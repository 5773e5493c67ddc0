package bus

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"go.opentelemetry.io/otel/trace"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// pulled is a store's snapshot as a reader gets it.
func pulled(t *testing.T, s *store) (*snapshot, []Change, []*piece) {
	t.Helper()
	snap, err := s.build(s.copy())
	if err != nil {
		t.Fatal(err)
	}
	var state []Change
	var pieces []*piece
	for _, body := range snap.chunks {
		rows, err := readChunk(body)
		if err != nil {
			t.Fatal(err)
		}
		state, pieces = append(state, rows...), append(pieces, newPiece(body, rows, snap.key))
	}
	return snap, state, pieces
}

// TestStartTakesASnapshotAsItIs: the copy is the same as one that put every row,
// and its values rest in the chunks that came.
func TestStartTakesASnapshotAsItIs(t *testing.T) {
	from := packing(20_000)
	for n := range 3000 {
		from.put(put(busv1.Table(2+n%3), fmt.Sprint("key-", n), strings.Repeat("x", n%90)))
	}
	snap, state, pieces := pulled(t, from)
	s := newStore(nil)
	s.out.attach()
	s.rekey(from.key)
	s.start(from.pos, state, pieces, trace.SpanContext{})
	if bad := s.mismatches(from.sums()); len(bad) > 0 || s.count != from.count || s.bytes != from.bytes {
		t.Errorf("tables %v differ; %d rows of %d bytes, want %d of %d", bad, s.count, s.bytes, from.count, from.bytes)
	}
	if _, blocks := stored(s); blocks != len(snap.chunks) || s.plainBytes != 0 {
		t.Errorf("%d blocks and %d plain bytes, want the %d chunks and none", blocks, s.plainBytes, len(snap.chunks))
	}
	cut, ok := s.next()
	if !ok || !cut.Complete {
		t.Fatalf("next() = %v, %v, want the whole state", cut.Complete, ok)
	}
	same := func(a, b Change) bool {
		return a.Table == b.Table && a.Key == b.Key && string(a.Value) == string(b.Value)
	}
	if !slices.EqualFunc(from.all(), cut.Changes, same) {
		t.Error("the consumer's first state is not the writer's")
	}
	// It goes on as any other.
	s.put(put(2, "key-0", "other"))
	from.put(put(2, "key-0", "other"))
	s.put(Change{3, "key-1", nil})
	from.put(Change{3, "key-1", nil})
	if bad := s.mismatches(from.sums()); len(bad) > 0 || s.count != from.count {
		t.Errorf("after two changes tables %v differ; %d rows, want %d", bad, s.count, from.count)
	}
	again, err := s.build(s.copy())
	want, werr := from.build(from.copy())
	if err != nil || werr != nil || again.id != want.id {
		t.Errorf("snapshots are %x and %x (%v, %v), want the same", again.id, want.id, err, werr)
	}
}

// TestChangesFollowTheFirstState: what comes before the consumer has looked is
// told after it, not lost in it.
func TestChangesFollowTheFirstState(t *testing.T) {
	from := packing(100)
	_, state, pieces := pulled(t, from)
	s := newStore(nil)
	s.out.attach()
	s.rekey(from.key)
	s.start(position{5, 10}, state, pieces, trace.SpanContext{})
	s.apply(cut{at: position{5, 11}, changes: []Change{put(1, "new", "x"), {1, state[0].Key, nil}}})
	first, _ := s.next()
	if !first.Complete || first.Seq != 10 || len(first.Changes) != 100 {
		t.Errorf("first cut: complete %v, sequence %d, %d rows; want the 100 of 10", first.Complete, first.Seq, len(first.Changes))
	}
	then, ok := s.next()
	if !ok || then.Complete || then.Seq != 11 || len(then.Changes) != 2 {
		t.Errorf("second cut: %+v, %v; want the two changes of 11", then, ok)
	}
	if _, more := s.next(); more {
		t.Error("a third cut")
	}
}

// TestOddSnapshotsAreTakenRowByRow: a peer's chunk that is not as we would have
// written it is no block, and a row that comes twice is there once.
func TestOddSnapshotsAreTakenRowByRow(t *testing.T) {
	key := make([]byte, digestKeySize)
	for name, rows := range map[string][]Change{
		"in no order": {put(1, "b", "1"), put(1, "a", "2")},
		"twice":       {put(1, "a", "1"), put(1, "a", "2")},
	} {
		var raw []byte
		for _, c := range rows {
			raw = appendChange(raw, c)
		}
		body := pack(raw)
		read, err := readChunk(body)
		if err != nil {
			t.Fatal(err)
		}
		s := newStore(nil)
		s.rekey([digestKeySize]byte(key))
		s.start(position{1, 1}, read, []*piece{newPiece(body, read, key)}, trace.SpanContext{})
		if got := contents(s)["TABLE_NAMESPACES a"]; got != "2" {
			t.Errorf("%s: a is %q, want the last", name, got)
		}
		s.packAbove = 1
		s.settle()
		if got := contents(s)["TABLE_NAMESPACES a"]; got != "2" {
			t.Errorf("%s, packed: a is %q, want the last", name, got)
		}
	}
	body := append(pack(appendChange(nil, put(1, "a", "1"))), 0x1a, 0x00) // another field after the rows
	read, err := readChunk(body)
	if err != nil {
		t.Fatal(err)
	}
	if p := newPiece(body, read, key); p.in != nil {
		t.Error("a chunk with something else in it became a block")
	}
}

// TestNothingOfTheSnapshotStays: the rows and the blocks do, what they came in
// doesn't; at 150,000 pods it would be 100 MB.
func TestNothingOfTheSnapshotStays(t *testing.T) {
	s := newStore(nil)
	s.out.attach()
	held := func() (state weak.Pointer[Change], hashes weak.Pointer[sum128]) {
		from := packing(2000)
		_, all, pieces := pulled(t, from)
		s.rekey(from.key)
		s.start(from.pos, all, pieces, trace.SpanContext{})
		return weak.Make(&all[0]), weak.Make(&pieces[0].hashes[0])
	}
	state, hashes := held()
	if cut, ok := s.next(); !ok || len(cut.Changes) != 2000 {
		t.Fatalf("next() = %d rows, %v, want 2000", len(cut.Changes), ok)
	}
	runtime.GC()
	if state.Value() != nil || hashes.Value() != nil {
		t.Errorf("the snapshot's rows are kept: %v, and their hashes: %v", state.Value() != nil, hashes.Value() != nil)
	}
	runtime.KeepAlive(s)
}
