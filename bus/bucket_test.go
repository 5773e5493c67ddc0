package bus

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// twoCopies are equal but for what spoil does to the second.
func twoCopies(rows int, spoil func(s *store)) (sound, spoilt *store) {
	copies := [2]*store{}
	for i := range copies {
		s := newStore(nil)
		s.rekey([digestKeySize]byte{7})
		s.synced, s.pos = true, position{5, 10}
		for n := range rows {
			s.put(put(busv1.Table(1+n%3), fmt.Sprintf("namespace-%d/a-name-%d", n%50, n), strings.Repeat(fmt.Sprint(n), 40)))
		}
		copies[i] = s
	}
	spoil(copies[1])
	return copies[0], copies[1]
}

func contents(s *store) map[string]string {
	out := make(map[string]string, s.count)
	for _, c := range s.all() {
		out[fmt.Sprint(c.Table, " ", c.Key)] = string(c.Value)
	}
	return out
}

func TestPatchHealsWhatDiffers(t *testing.T) {
	const key = "namespace-0/a-name-0"
	for name, spoil := range map[string]func(s *store){
		"a row is missing":   func(s *store) { s.put(Change{1, key, nil}) },
		"a row is another":   func(s *store) { s.put(put(1, key, "x")) },
		"a row is too much":  func(s *store) { s.put(put(2, "ghost", "x")) },
		"two tables":         func(s *store) { s.put(Change{1, key, nil}); s.put(put(3, "ghost", "x")) },
		"a table that's new": func(s *store) { s.put(put(9, "ghost", "x")) },
	} {
		t.Run(name, func(t *testing.T) {
			sound, spoilt := twoCopies(30_000, spoil)
			bad := spoilt.mismatches(sound.sums())
			ask := spoilt.differing(bad)
			p := sound.patchFor(ask)
			if p == nil {
				t.Fatal("no patch")
			}
			question := len(Encode(&busv1.Ask{Differing: ask}))
			answer := len(packMessage(&busv1.Answer{Kind: &busv1.Answer_Patch{Patch: p}}))
			if question+answer > 100<<10 {
				t.Errorf("%d + %d bytes, want 100 KB at most", question, answer)
			}
			if err := spoilt.patch(sound.pos, p, trace.SpanContext{}); err != nil {
				t.Fatal(err)
			}
			if bad := spoilt.mismatches(sound.sums()); len(bad) > 0 {
				t.Errorf("tables %v still differ", bad)
			}
			if d := cmp.Diff(contents(sound), contents(spoilt)); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestPatchBelowTheCopy: the peer was asked at 10 and the copy has gone on.
func TestPatchBelowTheCopy(t *testing.T) {
	sound, spoilt := twoCopies(3000, func(s *store) { s.put(put(2, "ghost", "x")); s.put(Change{1, "namespace-0/a-name-0", nil}) })
	p := sound.patchFor(spoilt.differing([]busv1.Table{1, 2}))
	for _, s := range []*store{sound, spoilt} {
		c := []Change{put(1, "namespace-0/a-name-0", "newer"), {1, "namespace-3/a-name-3", nil}, put(2, "ghost-2", "real")}
		s.apply(cut{at: position{5, 11}, changes: c, entry: entry{seq: 11, parts: [][]byte{pack(encodeBatch(c, 0))}}})
	}
	if err := spoilt.patch(position{5, 10}, p, trace.SpanContext{}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(contents(sound), contents(spoilt)); d != "" {
		t.Error(d)
	}
	if _, _, ok := spoilt.ring.from(11, 10); !ok {
		t.Error("the ring is gone though nothing in it was wrong")
	}
	if err := spoilt.patch(position{5, 2}, p, trace.SpanContext{}); err == nil {
		t.Error("a patch that the ring doesn't reach back to is applied")
	}
}

func TestNonsensePatches(t *testing.T) {
	sound, spoilt := twoCopies(3000, func(s *store) { s.put(Change{1, "namespace-0/a-name-0", nil}) })
	before := contents(spoilt)
	for name, p := range map[string]*busv1.Patch{
		"a row of no bucket":      {Rows: []*busv1.Change{{Table: 1, Key: "k"}}},
		"a row of another bucket": {Tables: []*busv1.PatchTable{{Table: 1, Buckets: []uint32{buckets + 5}}}, Rows: []*busv1.Change{{Table: 1, Key: "k"}}},
	} {
		if err := spoilt.patch(spoilt.pos, p, trace.SpanContext{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if !maps.Equal(before, contents(spoilt)) {
		t.Error("nonsense changed the copy")
	}
	for name, ask := range map[string][]*busv1.Buckets{
		"nothing":         nil,
		"too few sums":    {{Table: 1, Sums: []uint64{1, 2}}},
		"too many tables": {{}, {}, {}, {}, {}},
		"all is wrong":    {{Table: 1, Sums: make([]uint64, buckets)}, {Table: 2, Sums: make([]uint64, buckets)}, {Table: 3, Sums: make([]uint64, buckets)}},
	} {
		if p := sound.patchFor(ask); p != nil {
			t.Errorf("%s: a patch of %d rows, want a snapshot", name, len(p.GetRows()))
		}
	}
	if ask := spoilt.differing([]busv1.Table{1, 2, 3, 4, 5}); ask != nil {
		t.Error("asks for patches of five tables")
	}
}
