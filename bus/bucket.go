package bus

import (
	"bytes"
	"slices"
	"time"

	"github.com/dchest/siphash"
	"go.opentelemetry.io/otel/trace"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// A table that differs from the writer's is compared by buckets of its keys, so
// that one damaged row costs the rows of one bucket and not a snapshot.
const (
	// buckets is how many there are in a table: 150,000 rows make buckets of
	// some 150, and their sums a question of 8 KiB.
	buckets = 1024
	// maxDiffering is in how many tables at once a reader looks for the fault;
	// a copy that is wrong in more is replaced.
	maxDiffering = 4
	// patchRaw bounds a patch before compression; a snapshot is the answer to
	// a copy that differs in more. Rows compress to a third at least.
	patchRaw = 256 << 10
)

// bucket is where a key belongs, for everybody in the same epoch.
func (h *hasher) bucket(key string) uint32 {
	h.buf = append(h.buf[:0], key...)
	return uint32(siphash.Hash(h.k0, h.k1, h.buf) % buckets)
}

// tally is the sum of each bucket of a table. The row hashes must be keyed.
func (s *store) tally(t busv1.Table) []uint64 {
	out := make([]uint64, buckets)
	if r := s.tables[t]; r != nil {
		for key, row := range r.byKey {
			out[s.hash.bucket(key)] += row.hash.low
		}
	}
	return out
}

// differing is a reader's question about tables that differ; nil when they are
// too many.
func (s *store) differing(tables []busv1.Table) []*busv1.Buckets {
	if !s.keyed || len(tables) > maxDiffering {
		return nil
	}
	out := make([]*busv1.Buckets, 0, len(tables))
	for _, t := range tables {
		out = append(out, &busv1.Buckets{Table: t, Sums: s.tally(t)})
	}
	return out
}

// patchFor answers such a question; nil when it makes no sense, or when what
// differs is better pulled as a snapshot.
func (s *store) patchFor(asked []*busv1.Buckets) *busv1.Patch {
	if !s.keyed || len(asked) == 0 || len(asked) > maxDiffering {
		return nil
	}
	p, size := &busv1.Patch{}, 0
	var at []rowAt
	for _, a := range asked {
		if len(a.GetSums()) != buckets {
			return nil
		}
		differs := make(map[uint32]bool)
		pt := &busv1.PatchTable{Table: a.GetTable()}
		for i, sum := range s.tally(a.GetTable()) {
			if sum != a.GetSums()[i] {
				differs[uint32(i)] = true
				pt.Buckets = append(pt.Buckets, uint32(i))
			}
		}
		if len(differs) == 0 {
			continue
		}
		p.Tables = append(p.Tables, pt)
		r := s.tables[a.GetTable()]
		if r == nil {
			continue // the reader has rows of a table that is empty here
		}
		for key, row := range r.byKey {
			if !differs[s.hash.bucket(key)] {
				continue
			}
			if size += int(row.size) + 16; size > patchRaw {
				return nil
			}
			at = append(at, rowAt{a.GetTable(), key, row.in})
		}
	}
	slices.SortFunc(at, compareRows)
	bad := values(at, func(i int, value []byte) {
		p.Rows = append(p.Rows, &busv1.Change{Table: at[i].table, Key: at[i].key, Value: bytes.Clone(value)})
	})
	if len(bad) > 0 {
		return nil // building a snapshot fails as well, and then this peer heals
	}
	return p
}

// patch puts the peer's rows in the place of everything that the copy has in
// the patch's buckets. The peer was at a position of this epoch that the copy
// has passed; what came since is put over it. The ring stays true.
func (s *store) patch(at position, p *busv1.Patch, sc trace.SpanContext) error {
	inside := make(map[busv1.Table]map[uint32]bool, len(p.GetTables()))
	for _, pt := range p.GetTables() {
		set := make(map[uint32]bool, len(pt.GetBuckets()))
		for _, b := range pt.GetBuckets() {
			set[b] = true
		}
		inside[pt.GetTable()] = set
	}
	rows := make([]Change, 0, len(p.GetRows()))
	for _, r := range p.GetRows() {
		if !inside[r.GetTable()][s.hash.bucket(r.GetKey())] || !s.only.keeps(r.GetTable()) {
			return errBody
		}
		value := r.GetValue()
		if value == nil {
			value = []byte{}
		}
		rows = append(rows, Change{Table: r.GetTable(), Key: r.GetKey(), Value: value})
	}
	rows, err := s.overlay(at, rows)
	if err != nil {
		return err
	}
	diff := s.become(rows, func(t busv1.Table, key string) bool { return inside[t][s.hash.bucket(key)] })
	s.out.add(s.pos, diff, time.Time{}, sc)
	return nil
}
