package bus

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// A copy that answers its peers must keep every row's bytes, though it reads
// them once in a blue moon: they compress to a fifth. So values rest in blocks.
const (
	// blockRaw is how much a block holds before compression: more compresses no
	// better, and a single row costs the reading of a block.
	blockRaw = 1 << 20
	// packAbove is how many bytes of plain values are worth the work.
	packAbove = 1 << 20
	// mostPlain bounds the list of them, on which rows stay that are gone.
	mostPlain = 1 << 16
)

// block holds values and never changes, but for live. A plain one is the value
// of one row; a packed one is a body of changes, sorted as sortRows does.
type block struct {
	body []byte
	// rows is how many were packed; 0 for a plain block.
	rows int32
	// live is how many of them are still the newest; the store's lock guards it.
	live int32
}

func (b *block) packed() bool { return b.rows > 0 }

// sparse says that most of what a block holds is gone.
func (b *block) sparse() bool { return b.packed() && b.live*2 < b.rows }

// rowAt says where a row's value was at some moment.
type rowAt struct {
	table busv1.Table
	key   string
	in    *block
}

func compareRows(a, b rowAt) int {
	return cmp.Or(cmp.Compare(a.table, b.table), strings.Compare(a.key, b.key))
}

// unreadable is a block that can't be read: the memory is damaged.
type unreadable struct {
	block *block
	cause error
}

func (e *unreadable) Error() string { return fmt.Sprintf("reading %d rows: %v", e.block.rows, e.cause) }

func (e *unreadable) Unwrap() error { return e.cause }

// cursor walks through a packed block.
type cursor struct {
	raw    []byte
	opened bool
	bad    bool
	left   int
}

// next gives the value of a row that comes after the one before.
func (c *cursor) next(r rowAt) (value []byte, err error) {
	if !c.opened {
		c.opened = true
		if c.raw, err = unpack(r.in.body); err != nil {
			return nil, err
		}
	}
	value, c.raw, err = find(c.raw, r.table, r.key)
	return value, err
}

// values gives each row's value, in the order of rows, which must be that of
// compareRows: a block is unpacked when its first row comes and dropped after
// its last. The bytes are the block's and must not be changed. Rows of blocks
// that can't be read are left out, and the blocks are named.
func values(rows []rowAt, give func(i int, value []byte)) (bad []*unreadable) {
	open := make(map[*block]*cursor)
	for _, r := range rows {
		if r.in.packed() {
			c := open[r.in]
			if c == nil {
				c = new(cursor)
				open[r.in] = c
			}
			c.left++
		}
	}
	for i, r := range rows {
		if !r.in.packed() {
			give(i, r.in.body)
			continue
		}
		c := open[r.in]
		if !c.bad {
			value, err := c.next(r)
			if err != nil {
				c.bad = true
				bad = append(bad, &unreadable{r.in, err})
			} else {
				give(i, value)
			}
		}
		if c.left--; c.left == 0 || c.bad {
			c.raw = nil
		}
	}
	return bad
}

// find skips to a row of an unpacked block.
func find(raw []byte, table busv1.Table, key string) (value, rest []byte, err error) {
	for len(raw) > 0 {
		var p parsed
		if p, raw, err = nextChange(raw); err != nil {
			return nil, nil, err
		}
		if p.table == table && string(p.key) == key {
			return p.value, raw, nil
		}
	}
	return nil, nil, fmt.Errorf("%w: row %.80q is not where it was put", errBody, key)
}

// nextChange reads one change of what appendChange wrote, without a copy.
func nextChange(raw []byte) (p parsed, rest []byte, err error) {
	num, typ, n := protowire.ConsumeTag(raw)
	if n < 0 || num != fieldChanges || typ != protowire.BytesType {
		return p, nil, errBody
	}
	inner, m := protowire.ConsumeBytes(raw[n:])
	if m < 0 {
		return p, nil, errBody
	}
	if p, err = parseChange(inner); p.value == nil && !p.removed {
		p.value = []byte{} // an empty row is not a removal
	}
	return p, raw[n+m:], err
}

// pieces packs sorted rows with plain values and hands over each block with
// the rows that are in it.
func pieces(rows []rowAt, give func(b *block, rows []rowAt)) {
	var raw []byte
	start := 0
	for i, r := range rows {
		if raw == nil {
			raw = make([]byte, 0, blockRaw+MaxRow/8)
		}
		raw = appendChange(raw, Change{r.table, r.key, r.in.body})
		if len(raw) >= blockRaw || i == len(rows)-1 {
			// Packing takes more room than it fills, and a block stays.
			give(&block{body: bytes.Clone(pack(raw)), rows: int32(i + 1 - start)}, rows[start:i+1])
			raw, start = raw[:0], i+1
		}
	}
}

// settle packs what has become plain since the last time. Only taking the list
// and putting the blocks in its place need the lock.
func (s *store) settle() {
	s.mu.Lock()
	s.thin()
	var rows []rowAt
	if s.plainBytes >= s.packAbove || len(s.plain) > mostPlain {
		rows = s.takePlain()
	}
	s.mu.Unlock()
	if len(rows) > 0 {
		pieces(rows, s.rest)
	}
}

// takePlain lists the rows whose values are plain. The lock is held.
func (s *store) takePlain() []rowAt {
	rows := make([]rowAt, 0, len(s.plain))
	for _, id := range s.plain {
		if r := s.row(id.table, id.key); r != nil && !r.in.packed() {
			rows = append(rows, rowAt{id.table, id.key, r.in})
		}
	}
	s.plain = nil
	slices.SortFunc(rows, compareRows)
	return slices.CompactFunc(rows, func(a, b rowAt) bool { return compareRows(a, b) == 0 })
}

// rest puts a block in the place of the plain values that it was made of.
func (s *store) rest(b *block, rows []rowAt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, was := range rows {
		r := s.row(was.table, was.key)
		switch {
		case r == nil || r.in.packed():
		case r.in != was.in: // it is another row by now, and no list has it
			s.plain = append(s.plain, rowID{was.table, was.key})
		default:
			s.plainBytes -= len(r.in.body)
			r.in = b
			b.live++
		}
	}
}

// thin makes the rows plain again that are left in blocks of which most is
// gone. The lock is held.
func (s *store) thin() {
	for _, b := range s.sparse {
		if b.live == 0 {
			continue
		}
		raw, err := unpack(b.body)
		for err == nil && len(raw) > 0 {
			var p parsed
			if p, raw, err = nextChange(raw); err != nil {
				break
			}
			if t := s.tables[p.table]; t != nil {
				if r := t.byKey[string(p.key)]; r != nil && r.in == b {
					s.leave(r)
					s.setPlain(r, rowID{p.table, string(p.key)}, bytes.Clone(p.value))
				}
			}
		}
		if err != nil {
			s.lose(b)
		}
	}
	s.sparse = nil
}

// lose forgets the rows of a block that can't be read. The next beacon finds
// them missing, and peers have them. The lock is held.
func (s *store) lose(b *block) {
	slog.Error("rows of the log are damaged in memory, fetching them again", "rows", b.live)
	for t, r := range s.tables {
		for key, row := range r.byKey {
			if row.in == b {
				s.put(Change{Table: t, Key: key})
			}
		}
	}
}

// read is values for whoever doesn't hold the lock.
func (s *store) read(at []rowAt, give func(i int, value []byte)) error {
	bad := values(at, give)
	if len(bad) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range bad {
		s.lose(b.block)
	}
	return bad[0]
}

// changesOf makes changes of rows, in the order of Tables, then by key. Rows
// that can't be read are left out. The lock is not held.
func (s *store) changesOf(at []rowAt) []Change {
	slices.SortFunc(at, compareRows)
	out := make([]Change, 0, len(at))
	_ = s.read(at, func(i int, value []byte) { out = append(out, Change{at[i].table, at[i].key, value}) })
	slices.SortStableFunc(out, func(a, b Change) int { return byRank(a.Table, b.Table) })
	return out
}
