package bus

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
)

// packing is a store that packs whatever it has.
func packing(rows int) *store {
	s := newStore(nil)
	s.packAbove = 1
	s.rekey([digestKeySize]byte{7})
	s.synced, s.pos = true, position{5, 10}
	for n := range rows {
		s.put(put(1, fmt.Sprintf("namespace-%d/a-name-%d", n%50, n), strings.Repeat(fmt.Sprint(n), 20)))
	}
	return s
}

// stored counts what the values take and how many blocks hold them.
func stored(s *store) (size, blocks int) {
	seen := map[*block]bool{}
	for _, at := range s.rowsAt() {
		if !seen[at.in] {
			seen[at.in] = true
			size += len(at.in.body)
		}
	}
	return size, len(seen)
}

// TestRandomChangesOfAPackedStore holds a store that packs all the time against
// a map: contents, sums, snapshots, and another key.
func TestRandomChangesOfAPackedStore(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s, want := packing(0), map[string]string{}
	for step := range 60 {
		for range 200 {
			c := put(1, fmt.Sprint("key-", rng.IntN(900)), fmt.Sprint(rng.IntN(5), strings.Repeat("x", 50)))
			if rng.IntN(3) == 0 {
				c.Value = nil
			}
			if changed := s.differs(c); changed != s.put(c) {
				t.Fatalf("step %d: differs() and put() disagree on %v", step, c)
			}
			if delete(want, "TABLE_NAMESPACES "+c.Key); c.Value != nil {
				want["TABLE_NAMESPACES "+c.Key] = string(c.Value)
			}
		}
		if step%3 != 0 {
			s.settle()
		}
		if d := cmp.Diff(want, contents(s)); d != "" {
			t.Fatalf("step %d (-want +got)\n%s", step, d)
		}
	}
	fresh := newStore(nil)
	fresh.rekey(s.key)
	size := 0
	for _, c := range s.all() {
		fresh.put(c)
		size += len(c.Key) + len(c.Value)
	}
	if bad := s.mismatches(fresh.sums()); len(bad) > 0 || s.count != fresh.count || s.bytes != size {
		t.Errorf("tables %v differ from what they hold; %d rows of %d bytes, want %d of %d", bad, s.count, s.bytes, fresh.count, size)
	}
	a, err := s.build(s.copy())
	if err != nil {
		t.Fatal(err)
	}
	fresh.pos = s.pos
	b, err := fresh.build(fresh.copy())
	if err != nil || a.id != b.id {
		t.Errorf("peers' snapshots are %x and %x (%v), want the same", a.id, b.id, err)
	}
	s.rekey([digestKeySize]byte{8})
	fresh.rekey([digestKeySize]byte{8})
	if bad := s.mismatches(fresh.sums()); len(bad) > 0 {
		t.Errorf("under another key tables %v differ", bad)
	}
}

func TestPackingSavesAndForgets(t *testing.T) {
	s := packing(20_000)
	s.settle()
	size, blocks := stored(s)
	if raw := s.bytes; size > raw/3 || blocks > 5 || s.plainBytes != 0 {
		t.Errorf("%d bytes rest in %d blocks of %d bytes, and %d are plain", raw, blocks, size, s.plainBytes)
	}
	for n := range 15_000 {
		s.put(Change{1, fmt.Sprintf("namespace-%d/a-name-%d", n%50, n), nil})
	}
	s.settle() // makes what is left plain, and packs it
	s.settle()
	if after, _ := stored(s); after > size/3 || s.plainBytes != 0 || len(s.plain) != 0 {
		t.Errorf("a quarter of the rows takes %d of %d bytes, %d plain", after, size, s.plainBytes)
	}
	for range mostPlain + 2 {
		s.put(put(1, "one", "value"))
		s.put(Change{1, "one", nil})
	}
	s.packAbove = 1 << 20
	if s.settle(); len(s.plain) > 1 {
		t.Errorf("%d rows that are gone wait to be packed", len(s.plain))
	}
}

// TestPackingWhileRowsChange: what changes while blocks are made is not lost,
// and a snapshot of before sees what was before.
func TestPackingWhileRowsChange(t *testing.T) {
	s := packing(3000)
	before := contents(s)
	c := s.copy()
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20 {
			s.settle()
		}
	})
	want := maps.Clone(before)
	for n := range 3000 {
		key, value := fmt.Sprintf("namespace-%d/a-name-%d", n%50, n), fmt.Sprint("new-", n)
		s.mu.Lock()
		s.put(put(1, key, value))
		s.mu.Unlock()
		want["TABLE_NAMESPACES "+key] = value
	}
	wg.Wait()
	s.settle()
	if d := cmp.Diff(want, contents(s)); d != "" {
		t.Error(d)
	}
	got := map[string]string{}
	for _, ch := range s.changesOf(c.rows) {
		got[fmt.Sprint(ch.Table, " ", ch.Key)] = string(ch.Value)
	}
	if d := cmp.Diff(before, got); d != "" {
		t.Errorf("the copy of before changed\n%s", d)
	}
}

// TestDamagedBlock: rows that can't be read are missing, so that the digest
// tells and peers give them back.
func TestDamagedBlock(t *testing.T) {
	sound, s := packing(3000), packing(3000)
	s.settle()
	s.put(put(1, "sound", "value"))
	sound.put(put(1, "sound", "value"))
	body := s.row(1, "namespace-0/a-name-0").in.body
	body[len(body)/2] ^= 1
	if _, err := s.build(s.copy()); err == nil {
		t.Error("a snapshot is built of damaged rows")
	}
	if s.count != 1 || len(s.all()) != 1 {
		t.Errorf("%d rows, want the one that is sound", s.count)
	}
	if bad := s.mismatches(sound.sums()); len(bad) != 1 {
		t.Error("the sums don't tell")
	}
	s.replace(position{5, 11}, sound.all(), trace.SpanContext{})
	if d := cmp.Diff(contents(sound), contents(s)); d != "" {
		t.Error(d)
	}
}
