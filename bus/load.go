package bus

import (
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// A replica's start is the one moment at which it works through everything. So
// what can be done to a chunk of a snapshot alone is done where it arrives, on
// any processor: it is decoded, its rows are hashed, and its body becomes the
// block in which they rest.

// piece is what is known of the rows of one chunk beside the rows.
type piece struct {
	rows int
	// hashes are those of the rows under the manifest's key.
	hashes []sum128
	// in is the chunk itself, if it can serve as a block; else nil.
	in *block
}

// newPiece looks at the rows of a chunk. It needs the whole chunk: what keeps
// only some tables must not keep the others' bytes.
func newPiece(body []byte, rows []Change, key []byte) *piece {
	if len(key) != digestKeySize || len(rows) == 0 {
		return nil
	}
	p := &piece{rows: len(rows), hashes: make([]sum128, len(rows))}
	h := newHasher([digestKeySize]byte(key))
	size := 0
	for i, c := range rows {
		p.hashes[i] = h.row(c.Table, c.Key, c.Value)
		size += changeSize(c)
	}
	if size == rawSize(body) && slices.IsSortedFunc(rows, compareChanges) {
		p.in = &block{body: body, rows: int32(len(rows))}
	}
	return p
}

func compareChanges(a, b Change) int {
	return compareRows(rowAt{table: a.Table, key: a.Key}, rowAt{table: b.Table, key: b.Key})
}

// rawSize is how large a body gets when it is unpacked; 0 if it doesn't say.
func rawSize(body []byte) int {
	if len(body) > 0 && body[0] == formPlain {
		return len(body) - 1
	}
	var h zstd.Header
	if len(body) < 2 || h.Decode(body[1:]) != nil || !h.HasFCS {
		return 0
	}
	return int(min(h.FrameContentSize, maxBody))
}

// keysTogether is how many keys share an allocation: enough to save most of
// them, and so few that they go soon after the first of their rows.
const keysTogether = 32

// shareChanges reads a chunk. The values are parts of raw; whoever keeps one
// keeps all of it.
func shareChanges(raw []byte) (changes []Change, second uint64, err error) {
	var keys []byte
	first := 0
	settle := func() {
		all := string(keys)
		for i := first; i < len(changes); i++ {
			n := len(changes[i].Key)
			changes[i].Key, all = all[:n], all[n:]
		}
		keys, first = keys[:0], len(changes)
	}
	second, err = eachChange(raw, func(p parsed) {
		c := Change{Table: p.table}
		if !p.removed {
			c.Value = slices.Clip(p.value)
			if c.Value == nil {
				c.Value = []byte{}
			}
		}
		keys = append(keys, p.key...)
		c.Key = blank(len(p.key)) // as long as the key, until settle
		if changes = append(changes, c); len(changes)-first == keysTogether {
			settle()
		}
	})
	settle()
	return changes, second, err
}

var blanks = strings.Repeat(" ", MaxRow)

// blank is a string of a length; it costs nothing.
func blank(n int) string { return blanks[:min(n, len(blanks))] }

// segment is a run of rows of one table within one chunk.
type segment struct {
	rows []Change
	of   *piece
	at   int // of its first row in the piece
}

// load makes a store without rows that of a snapshot, on all processors. It
// reports whether it could: that a row is there twice is for put to say. The
// sums must be keyed with the pieces' key.
func (s *store) load(state []Change, pieces []*piece) bool {
	if s.count > 0 || len(pieces) == 0 {
		return false
	}
	by := make(map[busv1.Table][]segment)
	for _, p := range pieces {
		if p == nil || p.rows > len(state) {
			return false
		}
		rows := state[:p.rows]
		state = state[p.rows:]
		for at := 0; at < len(rows); {
			end := at + 1
			for end < len(rows) && rows[end].Table == rows[at].Table {
				end++
			}
			by[rows[at].Table] = append(by[rows[at].Table], segment{rows[at:end], p, at})
			at = end
		}
	}
	if len(state) > 0 {
		return false
	}
	s.replaced++
	tables := make(map[busv1.Table]*loading, len(by))
	var work sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for t, segments := range by {
		l := &loading{segments: segments, seen: s.replaced}
		tables[t] = l
		work.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			l.run()
		})
	}
	work.Wait()
	for _, l := range tables {
		if l.twice {
			return false
		}
	}
	for t, l := range tables {
		kept := l.rows // a pointer into l would keep the whole snapshot
		s.tables[t] = &kept
		s.count += len(l.rows.byKey)
		s.bytes += l.bytes
		for _, seg := range l.segments {
			if seg.of.in != nil {
				seg.of.in.live += int32(len(seg.rows))
				continue
			}
			for _, c := range seg.rows {
				s.plain = append(s.plain, rowID{c.Table, c.Key})
				s.plainBytes += len(c.Value)
			}
		}
	}
	return true
}

// loading fills one table.
type loading struct {
	segments []segment
	seen     uint32

	rows  rows
	bytes int
	twice bool
}

// rowsTogether is how many rows share an allocation, as keysTogether.
const rowsTogether = 32

func (l *loading) run() {
	n := 0
	for _, seg := range l.segments {
		n += len(seg.rows)
	}
	l.rows.byKey = make(map[string]*row, n)
	var slab []row
	for _, seg := range l.segments {
		for i, c := range seg.rows {
			if len(slab) == 0 {
				slab = make([]row, min(rowsTogether, len(seg.rows)-i))
			}
			r := &slab[0]
			slab = slab[1:]
			*r = row{hash: seg.of.hashes[seg.at+i], in: seg.of.in, size: uint32(len(c.Key) + len(c.Value)), seen: l.seen}
			if r.in == nil {
				r.in = &block{body: c.Value}
			}
			l.rows.byKey[c.Key] = r
			l.rows.sum = l.rows.sum.plus(r.hash)
			l.bytes += int(r.size)
		}
	}
	l.twice = len(l.rows.byKey) != n
}

// inTableOrder gives rows that are sorted by table and key in the order of
// Tables.
func inTableOrder(state []Change) []Change {
	var runs [][]Change
	for at := 0; at < len(state); {
		end := at + 1
		for end < len(state) && state[end].Table == state[at].Table {
			end++
		}
		runs = append(runs, state[at:end])
		at = end
	}
	slices.SortStableFunc(runs, func(a, b []Change) int { return byRank(a[0].Table, b[0].Table) })
	return slices.Concat(runs...)
}
