package bus

import (
	"slices"
	"strings"
	"time"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Selection says which rows of a table a question is about.
type Selection struct {
	Table busv1.Table
	// Prefix is what their keys begin with.
	Prefix string
	// Match narrows it; nil means all with the prefix.
	Match func(key string) bool
	// Side says that others refer to these rows, which never change once they are
	// put (templates): they are told apart, and make no cut worth telling.
	Side bool
}

func (s Selection) has(table busv1.Table, key string) bool {
	return table == s.Table && strings.HasPrefix(key, s.Prefix) && (s.Match == nil || s.Match(key))
}

// Past is one cut of the log as the history has it.
type Past struct {
	Epoch, Seq uint64
	// Stored is when the stream took it, Observed when the source saw the oldest
	// change of it; zero where that is not known.
	Stored, Observed time.Time
	// Trace is the W3C traceparent, if there is one.
	Trace string
	// Changes are those of the rows that were asked for, as far as they change
	// what was there.
	Changes []Change
	// Found says that no cut is known that made them: a checkpoint showed them
	// after a gap, so that they happened somewhere in it.
	Found bool
}

// Gap is a stretch of the log that the history does not have.
type Gap struct {
	// After was the last cut before it, said at From; Before is the first
	// position heard after it, at Until. Cuts between them are missing.
	AfterEpoch, AfterSeq   uint64
	BeforeEpoch, BeforeSeq uint64
	From, Until            time.Time
	// Closed is when a checkpoint showed all rows anew; zero when none has yet.
	Closed time.Time
}

// kept is one message of the log as the stream has it.
type kept struct {
	seq    uint64
	stored time.Time
	head   head
	body   []byte
}

// maxGaps bounds what is told of a history full of holes.
const maxGaps = 1000

// fold follows the log through its history, as a reader would that can't ask.
// It is pure: messages in, what they did to the selected rows out.
type fold struct {
	pick []Selection
	at   position
	// certain says that nothing is missing since the last checkpoint.
	certain bool
	rows    map[rowID][]byte
	side    map[rowID][]byte
	open    openCut
	heard   time.Time
	gaps    []Gap
	missed  int // gaps that are not in gaps
}

// openCut is a cut of which parts are still to come.
type openCut struct {
	at       position
	parts    int
	changes  []Change
	observed int64
}

func newFold(pick []Selection) *fold {
	return &fold{pick: pick, rows: make(map[rowID][]byte), side: make(map[rowID][]byte)}
}

// picked leaves those that were asked for.
func (f *fold) picked(changes []Change) []Change {
	return slices.DeleteFunc(changes, func(c Change) bool {
		return !slices.ContainsFunc(f.pick, func(s Selection) bool { return s.has(c.Table, c.Key) })
	})
}

// restore makes rows, which are all that there were at a position, the state. It
// gives what that changes.
func (f *fold) restore(at position, stored time.Time, rows []Change) (Past, bool) {
	past := Past{Epoch: at.epoch, Seq: at.seq, Stored: stored, Found: true}
	there := make(map[rowID]bool, len(rows))
	for _, c := range f.picked(rows) {
		there[rowID{c.Table, c.Key}] = true
		if f.put(c) {
			past.Changes = append(past.Changes, c)
		}
	}
	for id := range f.rows {
		if !there[id] {
			past.Changes = append(past.Changes, Change{Table: id.table, Key: id.key})
			delete(f.rows, id)
		}
	}
	sortChanges(past.Changes)
	f.at, f.certain, f.open = at, true, openCut{}
	for i := len(f.gaps) - 1; i >= 0 && f.gaps[i].Closed.IsZero(); i-- {
		f.gaps[i].Closed = stored
	}
	return past, len(past.Changes) > 0
}

// take goes on by one message. It gives the cut that the message completed, if
// that changed a selected row.
func (f *fold) take(m kept) (Past, bool) {
	if m.head.beacon {
		if f.at.before(m.head.position) {
			f.gap(m)
			f.at, f.open = m.head.position, openCut{}
		}
		if m.head.epoch >= f.at.epoch {
			f.heard = m.stored
		}
		return Past{}, false
	}
	if !f.at.before(m.head.position) || m.head.seq == 0 {
		return Past{}, false // of an epoch that has ended, or said before the checkpoint
	}
	follows := m.head.position == position{f.at.epoch, f.at.seq + 1} ||
		m.head.epoch > f.at.epoch && m.head.prev == f.at && f.at != position{}
	if m.head.part == 0 {
		f.open = openCut{at: m.head.position}
	}
	changes, observed, ok := decodeKept(m.body)
	if !follows || f.open.at != m.head.position || f.open.parts != m.head.part || !ok {
		f.gap(m)
		// What can be read is still the best that is known.
		f.at = position{m.head.epoch, m.head.seq - 1}
		if f.open.at != m.head.position {
			f.open = openCut{at: m.head.position}
		}
		f.open.parts = m.head.part
	}
	f.heard = m.stored
	f.open.parts++
	f.open.changes = append(f.open.changes, f.picked(changes)...)
	if observed != 0 && (f.open.observed == 0 || observed < f.open.observed) {
		f.open.observed = observed
	}
	if m.head.more {
		return Past{}, false
	}
	done := f.open
	f.at, f.open = m.head.position, openCut{}
	past := Past{Epoch: f.at.epoch, Seq: f.at.seq, Stored: m.stored, Trace: m.head.trace}
	if done.observed != 0 {
		past.Observed = time.Unix(0, done.observed)
	}
	for _, c := range done.changes {
		if f.put(c) {
			past.Changes = append(past.Changes, c)
		}
	}
	return past, len(past.Changes) > 0
}

func decodeKept(body []byte) (changes []Change, observed int64, ok bool) {
	raw, err := unpack(body)
	if err != nil {
		return nil, 0, false
	}
	changes, second, err := decodeChanges(raw)
	return changes, int64(second), err == nil
}

func (f *fold) gap(m kept) {
	f.certain = false
	if len(f.gaps) == maxGaps {
		f.missed++
		return
	}
	f.gaps = append(f.gaps, Gap{
		AfterEpoch: f.at.epoch, AfterSeq: f.at.seq, BeforeEpoch: m.head.epoch, BeforeSeq: m.head.seq,
		From: f.heard, Until: m.stored,
	})
}

// put applies one change and says whether it is one. A removal is told even of a
// row that is not known when it may have come and gone in a gap.
func (f *fold) put(c Change) bool {
	id := rowID{c.Table, c.Key}
	if slices.ContainsFunc(f.pick, func(s Selection) bool { return s.Side && s.has(c.Table, c.Key) }) {
		if c.Value != nil {
			f.side[id] = c.Value
		}
		return false
	}
	old, has := f.rows[id]
	if c.Value == nil {
		delete(f.rows, id)
		return has || !f.certain
	}
	f.rows[id] = c.Value
	return !has || string(old) != string(c.Value)
}

// listed are rows in order.
func listed(rows map[rowID][]byte) []Change {
	out := make([]Change, 0, len(rows))
	for id, value := range rows {
		out = append(out, Change{Table: id.table, Key: id.key, Value: value})
	}
	slices.SortFunc(out, func(a, b Change) int {
		return compareRows(rowAt{table: a.Table, key: a.Key}, rowAt{table: b.Table, key: b.Key})
	})
	return out
}
