package cases

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Verdicts of a case.
const (
	exact     = "ok"
	sameState = "ok-state"
	failed    = "failed"
	later     = "later"
	differs   = "differs"
)

// score counts verdicts by area.
type score struct {
	mu    sync.Mutex
	areas map[string]map[string]int
}

func (s *score) add(area, verdict string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.areas == nil {
		s.areas = map[string]map[string]int{}
	}
	if s.areas[area] == nil {
		s.areas[area] = map[string]int{}
	}
	s.areas[area][verdict]++
}

func (s *score) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.areas) == 0
}

// String is the table that a run prints. "ok-state": the messages were split
// differently but left the same live set. "differs": on purpose, and a
// COMPATIBILITY.md says why. "later": outside the present scope.
func (s *score) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%-36s %6s %9s %8s %7s %6s\n", "AREA", "ok", "ok-state", "differs", "failed", "later")
	total := map[string]int{}
	for _, area := range slices.Sorted(maps.Keys(s.areas)) {
		row := s.areas[area]
		fmt.Fprintf(&b, "%-36s %6d %9d %8d %7d %6d\n", area, row[exact], row[sameState], row[differs], row[failed], row[later])
		for k, n := range row {
			total[k] += n
		}
	}
	fmt.Fprintf(&b, "%-36s %6d %9d %8d %7d %6d\n", "ALL", total[exact], total[sameState], total[differs], total[failed], total[later])
	return b.String()
}
