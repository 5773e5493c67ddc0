package bus

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

func put(table busv1.Table, key, value string) Change { return Change{table, key, []byte(value)} }

func TestSumsFollowAnyPath(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var digest [digestKeySize]byte
	digest[3] = 9
	a, b := newStore(nil), newStore(nil)
	a.rekey(digest)
	for range 2000 {
		c := put(busv1.Table(1+rng.IntN(5)), fmt.Sprint(rng.IntN(50)), fmt.Sprint(rng.IntN(9)))
		if rng.IntN(3) == 0 {
			c.Value = nil
		}
		a.put(c)
	}
	state := a.all()
	rng.Shuffle(len(state), func(i, j int) { state[i], state[j] = state[j], state[i] })
	b.replace(position{1, 1}, state, trace.SpanContext{})
	b.rekey(digest)
	if bad := b.mismatches(a.sums()); len(bad) > 0 {
		t.Errorf("same rows by another path: tables %v differ", bad)
	}
	if a.bytes != b.bytes || a.count != b.count || a.count != len(state) {
		t.Errorf("%d rows, %d bytes by one path, %d, %d by the other", a.count, a.bytes, b.count, b.bytes)
	}
	digest[3]++
	b.rekey(digest)
	if bad := b.mismatches(a.sums()); len(bad) != len(a.sums()) {
		t.Errorf("another key: tables %v differ, want all %d", bad, len(a.sums()))
	}
}

func TestMismatchesNameTheTables(t *testing.T) {
	s := newStore(nil)
	s.rekey([digestKeySize]byte{1})
	s.put(put(1, "a", "x"))
	s.put(put(2, "a", "x"))
	s.put(put(3, "a", "x"))
	want := s.sums()
	s.put(Change{1, "a", nil})
	s.put(put(2, "a", "y"))
	s.put(put(4, "a", "x"))
	if got := s.mismatches(want); !slices.Equal(got, []busv1.Table{1, 2, 4}) {
		t.Errorf("mismatches() = %v, want 1, 2 and 4", got)
	}
}

// TestDigestIsTheSpecs holds the hash against values computed once: two
// versions of a process must agree.
func TestDigestIsTheSpecs(t *testing.T) {
	var key [digestKeySize]byte
	for i := range key {
		key[i] = byte(i)
	}
	got := newHasher(key).row(busv1.Table_TABLE_NODES, "n", []byte("v"))
	// SipHash-2-4-128, key 00..0f, of 02 01 'n' 01 'v'.
	want := sum128{goldenHigh, goldenLow}
	if got != want {
		t.Errorf("row() = %#x, want %#x", got, want)
	}
	if a, b := newHasher(key).row(1, "ab", []byte("c")), newHasher(key).row(1, "a", []byte("bc")); a == b {
		t.Error("rows that differ in where the key ends have one hash")
	}
}

func TestSum128IsModulo(t *testing.T) {
	top := sum128{1<<64 - 1, 1<<64 - 1}
	one := sum128{0, 1}
	if got := top.plus(one); got != (sum128{}) {
		t.Errorf("top + 1 = %v", got)
	}
	if got := (sum128{}).minus(one); got != top {
		t.Errorf("0 - 1 = %v", got)
	}
	if got := (sum128{0, 1<<64 - 1}).plus(one); got != (sum128{1, 0}) {
		t.Errorf("carry = %v", got)
	}
}

func TestSnapshotsOfTwoPeersAreOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var state []Change
	for i := range 3000 {
		noise := make([]byte, 1+rng.IntN(2000))
		for j := range noise {
			noise[j] = byte(rng.IntN(256))
		}
		state = append(state, Change{busv1.Table(1 + i%4), fmt.Sprint("k", i), noise})
	}
	build := func() *snapshot {
		s := newStore(nil)
		s.rekey([digestKeySize]byte{5})
		rng.Shuffle(len(state), func(i, j int) { state[i], state[j] = state[j], state[i] })
		s.replace(position{9, 9}, state, trace.SpanContext{})
		snap, err := s.build(s.copy())
		if err != nil {
			t.Fatal(err)
		}
		return snap
	}
	a, b := build(), build()
	if a.id != b.id || len(a.chunks) != len(b.chunks) {
		t.Fatalf("snapshots %x of %d chunks and %x of %d", a.id, len(a.chunks), b.id, len(b.chunks))
	}
	rows := 0
	for i := range a.chunks {
		if !bytes.Equal(a.chunks[i], b.chunks[i]) {
			t.Errorf("chunk %d differs", i)
		}
		if len(a.chunks[i]) > MaxPayload {
			t.Errorf("chunk %d has %d bytes, more than a message may", i, len(a.chunks[i]))
		}
		raw, err := unpack(a.chunks[i])
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := decodeChanges(raw)
		if err != nil {
			t.Fatal(err)
		}
		rows += len(got)
	}
	if rows != len(state) || int(a.rows) != rows {
		t.Errorf("%d rows in chunks, %d in the manifest, want %d", rows, a.rows, len(state))
	}
}

func TestReplaceTellsOnlyDifferences(t *testing.T) {
	s := newStore(nil)
	s.replace(position{1, 1}, []Change{put(1, "a", "1"), put(1, "b", "1"), put(2, "a", "1")}, trace.SpanContext{})
	s.out.attach()
	if first, ok := s.next(); !ok || !first.Complete || len(first.Changes) != 3 {
		t.Fatalf("first cut = %+v, %v", first, ok)
	}
	kept := s.tables[1].byKey["a"]
	s.replace(position{1, 5}, []Change{put(1, "a", "1"), put(1, "b", "2")}, trace.SpanContext{})
	cut, ok := s.next()
	want := []Change{put(1, "b", "2"), {2, "a", nil}}
	if d := cmp.Diff(want, cut.Changes); !ok || d != "" {
		t.Errorf("second cut (-want +got):\n%s", d)
	}
	if s.tables[1].byKey["a"] != kept {
		t.Error("an equal row was replaced")
	}
	s.replace(position{1, 6}, []Change{put(1, "a", "1"), put(1, "b", "2")}, trace.SpanContext{})
	if cut, ok := s.next(); ok {
		t.Errorf("a snapshot without differences told %+v", cut)
	}
}

func TestAnswersSayBehindRatherThanWrong(t *testing.T) {
	s := newStore(nil)
	r := &Reader{t: noTransport{}, store: s, cfg: ReaderConfig{Now: nowhen}, metrics: newMetrics(nil, "local")}
	r.newest.Store(&position{})
	srv := newServer(r)
	ask := func(a *busv1.Ask) string {
		switch got := srv.answer(a); got.GetKind().(type) {
		case *busv1.Answer_Nothing:
			return "nothing"
		case *busv1.Answer_Range:
			return fmt.Sprint("range of ", len(got.GetRange().GetEntries()))
		case *busv1.Answer_Manifest:
			return "snapshot"
		case *busv1.Answer_Behind:
			return "behind"
		}
		return "?"
	}
	if got := ask(&busv1.Ask{}); got != "behind" {
		t.Errorf("an unsynced peer answers %q, want behind", got)
	}
	s.replace(position{5, 10}, []Change{put(1, "a", "0")}, trace.SpanContext{})
	for seq := uint64(11); seq <= 20; seq++ {
		c := []Change{put(1, "a", fmt.Sprint(seq))}
		s.apply(cut{at: position{5, seq}, changes: c, entry: entry{seq: seq, parts: [][]byte{pack(encodeBatch(c, 0))}}})
	}
	check := func(name string, a *busv1.Ask, want string) {
		t.Helper()
		if got := ask(a); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	gap, digest := busv1.Reason_REASON_GAP, busv1.Reason_REASON_DIGEST
	check("at the end", &busv1.Ask{Epoch: 5, NextSeq: 21}, "nothing")
	check("three missing", &busv1.Ask{Epoch: 5, NextSeq: 18, MinEpoch: 5, MinSeq: 20, Reason: gap}, "range of 3")
	check("before the ring", &busv1.Ask{Epoch: 5, NextSeq: 5, Reason: gap}, "snapshot")
	check("never started", &busv1.Ask{NextSeq: 1}, "snapshot")
	check("ahead of this peer", &busv1.Ask{Epoch: 5, NextSeq: 22}, "behind")
	check("needs more than this peer has", &busv1.Ask{Epoch: 5, NextSeq: 18, MinEpoch: 5, MinSeq: 21}, "behind")
	check("needs a later epoch", &busv1.Ask{Epoch: 5, NextSeq: 18, MinEpoch: 6}, "behind")
	check("an older epoch, not at its end", &busv1.Ask{Epoch: 4, NextSeq: 18}, "snapshot")
	check("corrupt at the end", &busv1.Ask{Epoch: 5, NextSeq: 21, Reason: digest}, "snapshot")
	check("itself", &busv1.Ask{Epoch: 5, NextSeq: 18, Peer: "me"}, "behind")

	c := []Change{put(1, "b", "1")}
	s.apply(cut{at: position{6, 21}, changes: c, entry: entry{seq: 21, parts: [][]byte{pack(encodeBatch(c, 0))}}})
	check("at the end of the epoch before", &busv1.Ask{Epoch: 5, NextSeq: 21}, "range of 1")
	check("inside the epoch before", &busv1.Ask{Epoch: 5, NextSeq: 20}, "snapshot")
	check("past the end of the epoch before", &busv1.Ask{Epoch: 5, NextSeq: 25}, "snapshot")
}

// The two halves, in order, of what an independent implementation gives that
// agrees with the reference vectors (github.com/veorq/SipHash).
const (
	goldenHigh = 0x3d8dcd21cb6369ba
	goldenLow  = 0x542f746de8e8323e
)
