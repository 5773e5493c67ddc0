package bus

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/dchest/siphash"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// sum128 is a number modulo 2^128: the hash of a row, or the sum of many. A sum
// doesn't depend on order, and unlike XOR it tells a row applied twice.
type sum128 struct{ high, low uint64 }

func (s sum128) plus(o sum128) sum128 {
	low, carry := bits.Add64(s.low, o.low, 0)
	high, _ := bits.Add64(s.high, o.high, carry)
	return sum128{high, low}
}

func (s sum128) minus(o sum128) sum128 {
	low, borrow := bits.Sub64(s.low, o.low, 0)
	high, _ := bits.Sub64(s.high, o.high, borrow)
	return sum128{high, low}
}

// digestKeySize is the size of the key, which is random for each epoch so that
// nobody who can only create objects can aim at a collision. The digest finds
// faults; it authenticates nothing.
const digestKeySize = 16

// hasher makes row hashes: siphash-2-4-128 (BUS.md section 2) over the
// length-prefixed table, key and value. It is not for concurrent use.
type hasher struct {
	k0, k1 uint64
	buf    []byte
}

func newHasher(key [digestKeySize]byte) *hasher {
	return &hasher{
		k0: binary.LittleEndian.Uint64(key[:8]),
		k1: binary.LittleEndian.Uint64(key[8:]),
	}
}

func (h *hasher) row(table busv1.Table, key string, value []byte) sum128 {
	b := binary.AppendUvarint(h.buf[:0], uint64(table))
	b = binary.AppendUvarint(b, uint64(len(key)))
	b = append(b, key...)
	b = binary.AppendUvarint(b, uint64(len(value)))
	b = append(b, value...)
	h.buf = b
	high, low := siphash.Hash128(h.k0, h.k1, b)
	return sum128{high, low}
}

// rekey makes the sums those of another digest key: 160 ms for 175,000 rows,
// once an epoch (BUS.md section 2).
func (s *store) rekey(key [digestKeySize]byte) {
	if s.key == key {
		s.keyed = true
		return
	}
	s.key, s.keyed = key, true
	s.hash = newHasher(key)
	for _, r := range s.tables {
		r.sum = sum128{}
	}
	at := s.rowsAt()
	slices.SortFunc(at, compareRows)
	for _, bad := range values(at, func(i int, value []byte) {
		r := s.row(at[i].table, at[i].key)
		r.hash = s.hash.row(at[i].table, at[i].key, value)
		t := s.tables[at[i].table]
		t.sum = t.sum.plus(r.hash)
	}) {
		s.lose(bad.block)
	}
}

// rowsAt lists every row, in no order.
func (s *store) rowsAt() []rowAt {
	out := make([]rowAt, 0, s.count)
	for t, r := range s.tables {
		for key, row := range r.byKey {
			out = append(out, rowAt{t, key, row.in})
		}
	}
	return out
}

// sums is the state of every table that has rows, in order of their numbers.
func (s *store) sums() []*busv1.Sum {
	out := make([]*busv1.Sum, 0, len(s.tables))
	for t, r := range s.tables {
		if len(r.byKey) == 0 {
			continue
		}
		out = append(out, &busv1.Sum{Table: t, Rows: uint64(len(r.byKey)), High: r.sum.high, Low: r.sum.low})
	}
	slices.SortFunc(out, func(a, b *busv1.Sum) int { return int(a.GetTable()) - int(b.GetTable()) })
	return out
}

// mismatches names the tables whose sums are not the wanted ones.
func (s *store) mismatches(want []*busv1.Sum) []busv1.Table {
	var bad []busv1.Table
	seen := make(map[busv1.Table]bool, len(want))
	for _, w := range want {
		if !s.only.keeps(w.GetTable()) {
			continue
		}
		seen[w.GetTable()] = true
		r := s.tables[w.GetTable()]
		if r == nil {
			r = &rows{}
		}
		if uint64(len(r.byKey)) != w.GetRows() || r.sum != (sum128{w.GetHigh(), w.GetLow()}) {
			bad = append(bad, w.GetTable())
		}
	}
	for t, r := range s.tables {
		if !seen[t] && len(r.byKey) > 0 {
			bad = append(bad, t)
		}
	}
	slices.Sort(bad)
	return bad
}
