package state

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// Changes are the rows that differ from what was last reported as Published,
// and when the oldest of their causes was seen. Rows put come first, what others
// refer to before those; removals follow in the opposite order: a policy is
// there before the endpoint it protects and stays until that is gone.
func (s *State) Changes() (changes []bus.Change, observed time.Time) {
	changes = make([]bus.Change, 0, len(s.dirty))
	for at := range s.dirty {
		c := bus.Change{Table: at.table, Key: at.key}
		if r := s.rows[at]; r != nil {
			c.Value = r.value
		}
		changes = append(changes, c)
	}
	sortChanges(changes)
	return changes, s.oldest
}

// Published says that the log holds everything that Changes or Truth gave.
func (s *State) Published() {
	clear(s.dirty)
	s.oldest = time.Time{}
}

// Pending is how many rows await publication.
func (s *State) Pending() int { return len(s.dirty) }

// Truth is every row.
func (s *State) Truth() []bus.Change {
	rows := make([]bus.Change, 0, len(s.rows))
	for at, r := range s.rows {
		rows = append(rows, bus.Change{Table: at.table, Key: at.key, Value: r.value})
	}
	sortChanges(rows)
	return rows
}

// Counts is how many objects of each kind are known, skipped ones included.
func (s *State) Counts() map[shape.Kind]int {
	out := make(map[shape.Kind]int, len(s.counts))
	maps.Copy(out, s.counts)
	return out
}

// Skipped lists the objects that were skipped, in part or whole, by name: at
// most most of them, and how many there are.
func (s *State) Skipped(most int) (some []*shape.Problem, total int) {
	for _, p := range s.skipped {
		some = append(some, p)
	}
	slices.SortFunc(some, func(a, b *shape.Problem) int {
		return cmp.Or(strings.Compare(a.String(), b.String()), strings.Compare(a.Text(), b.Text()))
	})
	total = len(some)
	return some[:min(most, total)], total
}

// rank is a table's place in bus.Tables.
var rank = func() map[busv1.Table]int {
	out := make(map[busv1.Table]int, len(bus.Tables))
	for i, t := range bus.Tables {
		out[t.Table] = i
	}
	return out
}()

func sortChanges(changes []bus.Change) {
	slices.SortFunc(changes, func(a, b bus.Change) int {
		if removedA, removedB := a.Value == nil, b.Value == nil; removedA != removedB {
			if removedB {
				return -1
			}
			return 1
		}
		order := cmp.Compare(rank[a.Table], rank[b.Table])
		if a.Value == nil {
			order = -order
		}
		return cmp.Or(order, strings.Compare(a.Key, b.Key))
	})
}
