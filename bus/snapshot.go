package bus

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dchest/siphash"
	"go.opentelemetry.io/otel/trace"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

const (
	// chunkRaw is where a chunk is cut: by raw size and not by an average ratio,
	// which would let some chunks grow over max_payload (BUS.md section 1).
	// It is a block's size, since a reader keeps its values in the chunks that came.
	chunkRaw  = blockRaw
	maxChunks = 4096
)

// snapshot is the state at one position, ready to be pulled.
type snapshot struct {
	at     position
	id     uint64
	chunks [][]byte
	rows   uint64
	sums   []*busv1.Sum
	key    []byte
	made   time.Time
	used   time.Time
}

// copied is what a snapshot is made of: where the rows are.
type copied struct {
	at   position
	rows []rowAt
	sums []*busv1.Sum
	key  []byte
}

// copy takes the state in the time of copying pointers.
func (s *store) copy() copied {
	c := copied{at: s.pos, rows: s.rowsAt()}
	if s.keyed {
		c.sums, c.key = s.sums(), slices.Clone(s.key[:])
	}
	return c
}

// build encodes a snapshot, on all processors. Two peers at one position build
// the same chunks, so that one can go on where another died. The lock is not
// held.
func (s *store) build(c copied) (*snapshot, error) {
	sortTables(c.rows)
	snap := &snapshot{at: c.at, rows: uint64(len(c.rows)), sums: c.sums, key: c.key}
	var packing sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var packed []*chunk
	var piece []Change
	size := 0
	cut := func() {
		if len(piece) == 0 {
			return
		}
		k := &chunk{}
		packed = append(packed, k)
		rows, raw := piece, make([]byte, 0, size)
		free <- struct{}{} // no more raw chunks than are worked at
		packing.Go(func() {
			defer func() { <-free }()
			k.pack(rows, raw)
		})
		piece, size = make([]Change, 0, len(piece)+len(piece)/8), 0
	}
	err := s.read(c.rows, func(i int, value []byte) {
		change := Change{c.rows[i].table, c.rows[i].key, value}
		n := changeSize(change)
		if size > 0 && size+n > chunkRaw {
			cut()
		}
		piece, size = append(piece, change), size+n
	})
	cut()
	packing.Wait()
	id := newIdentity(c)
	for _, k := range packed {
		err = cmp.Or(err, k.err)
		snap.chunks = append(snap.chunks, k.bodies...)
		id.buf = append(id.buf, k.id.buf...)
	}
	if err != nil {
		return nil, err
	}
	if len(snap.chunks) > maxChunks {
		return nil, fmt.Errorf("snapshot of %d chunks: %w", len(snap.chunks), ErrTooLarge)
	}
	snap.id = id.sum()
	return snap, nil
}

// sortTables is a sort by compareRows, a table on each processor.
func sortTables(rows []rowAt) {
	slices.SortFunc(rows, func(a, b rowAt) int { return cmp.Compare(a.table, b.table) })
	var sorting sync.WaitGroup
	for at := 0; at < len(rows); {
		end := at + 1
		for end < len(rows) && rows[end].table == rows[at].table {
			end++
		}
		part := rows[at:end]
		sorting.Go(func() { slices.SortFunc(part, func(a, b rowAt) int { return strings.Compare(a.key, b.key) }) })
		at = end
	}
	sorting.Wait()
}

// chunk is one on its way into a snapshot.
type chunk struct {
	bodies [][]byte
	id     identity
	err    error
}

// pack makes a body of rows, or two of halves if they compress too badly for
// one message. raw is memory to be used.
func (k *chunk) pack(rows []Change, raw []byte) {
	raw = raw[:0]
	for _, c := range rows {
		raw = appendChange(raw, c)
	}
	body := pack(raw)
	if len(body) > MaxPayload {
		if len(rows) == 1 {
			k.err = cmp.Or(k.err, fmt.Errorf("row %.80q: %w", rows[0].Key, ErrTooLarge))
			return
		}
		half := len(rows) / 2
		k.pack(rows[:half], raw)
		k.pack(rows[half:], raw)
		return
	}
	k.id.add(len(rows), len(raw))
	k.bodies = append(k.bodies, body)
}

// identity makes a snapshot's number from what it holds and how it is cut.
type identity struct{ buf []byte }

func newIdentity(c copied) *identity {
	id := &identity{}
	id.buf = binary.AppendUvarint(id.buf, c.at.epoch)
	id.buf = binary.AppendUvarint(id.buf, c.at.seq)
	id.buf = append(id.buf, c.key...)
	for _, s := range c.sums {
		id.buf = binary.AppendUvarint(id.buf, uint64(s.GetTable()))
		id.buf = binary.AppendUvarint(id.buf, s.GetRows())
		id.buf = binary.BigEndian.AppendUint64(id.buf, s.GetHigh())
		id.buf = binary.BigEndian.AppendUint64(id.buf, s.GetLow())
	}
	return id
}

func (id *identity) add(rows, size int) {
	id.buf = binary.AppendUvarint(id.buf, uint64(rows))
	id.buf = binary.AppendUvarint(id.buf, uint64(size))
}

func (id *identity) sum() uint64 { return siphash.Hash(0, 0, id.buf) }

func (s *snapshot) manifest(peer string) *busv1.Manifest {
	return &busv1.Manifest{
		Peer: peer, Snapshot: s.id, Chunks: uint32(len(s.chunks)),
		Rows: s.rows, Sums: s.sums, DigestKey: s.key,
	}
}

// overlay puts the cuts from the store's own ring over a state of an earlier
// position of the same epoch.
func (s *store) overlay(at position, state []Change) ([]Change, error) {
	if at.seq >= s.pos.seq {
		return state, nil
	}
	entries, _, ok := s.ring.from(at.seq+1, ringBatches)
	if !ok {
		return nil, errBehind
	}
	byID := make(map[rowID]int, len(state))
	for i, c := range state {
		byID[rowID{c.Table, c.Key}] = i
	}
	for _, e := range entries {
		for _, part := range e.parts {
			raw, err := unpack(part)
			if err != nil {
				return nil, err
			}
			changes, _, err := decodeChanges(raw)
			if err != nil {
				return nil, err
			}
			for _, c := range changes {
				if i, ok := byID[rowID{c.Table, c.Key}]; ok {
					state[i] = c
				} else {
					byID[rowID{c.Table, c.Key}] = len(state)
					state = append(state, c)
				}
			}
		}
	}
	return slices.DeleteFunc(state, func(c Change) bool { return c.Value == nil }), nil
}

// mend makes rows the state at the present position; the ring stays true.
func (s *store) mend(state []Change, sc trace.SpanContext) {
	ring, prev := s.ring, s.prev
	s.replace(s.pos, state, sc)
	s.ring, s.prev = ring, prev
}
