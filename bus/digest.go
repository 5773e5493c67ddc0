package bus

import (
	"encoding/binary"
	"math/bits"

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
