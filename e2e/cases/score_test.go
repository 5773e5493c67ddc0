package cases

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weftmesh/weft/e2e/internal/repo"
)

// Verdicts of a case.
const (
	exact     = "ok"
	sameState = "ok-state"
	failed    = "failed"
	differs   = "differs"
)

// score judges cases and counts verdicts by area.
type score struct {
	noted map[string]bool // where we differ on purpose
	mu    sync.Mutex
	areas map[string]map[string]int
}

func newScore(t *testing.T) *score {
	t.Helper()
	noted, err := compatibility()
	if err != nil {
		t.Fatal(err)
	}
	return &score{noted: noted, areas: map[string]map[string]int{}}
}

// judge fails the test of a case that did not go as wanted, unless it is noted that we
// differ there. Why is empty when it did.
func (s *score) judge(t *testing.T, id, area, note, verdict, why string) {
	t.Helper()
	switch {
	case why == "":
		s.add(area, verdict)
	case s.noted[id]:
		s.add(area, differs)
		t.Logf("COMPATIBILITY.md says why we differ: %s", why)
	default:
		s.add(area, failed)
		t.Errorf("%s: %s (%s)", area, why, note)
	}
}

func (s *score) add(area, verdict string) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
// COMPATIBILITY.md says why.
func (s *score) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%-36s %6s %9s %8s %7s\n", "AREA", "ok", "ok-state", "differs", "failed")
	total := map[string]int{}
	for _, area := range slices.Sorted(maps.Keys(s.areas)) {
		row := s.areas[area]
		fmt.Fprintf(&b, "%-36s %6d %9d %8d %7d\n", area, row[exact], row[sameState], row[differs], row[failed])
		for k, n := range row {
			total[k] += n
		}
	}
	fmt.Fprintf(&b, "%-36s %6d %9d %8d %7d\n", "ALL", total[exact], total[sameState], total[differs], total[failed])
	return b.String()
}

// report prints the counts. They are what a run is for, and `go test` hides the
// output of a package that passes, so they go to its own standard error, too.
func (s *score) report() {
	if s.empty() {
		return
	}
	out, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/2", os.Getppid()), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		fmt.Print(s)
		return
	}
	defer func() { _ = out.Close() }()
	if _, err := fmt.Fprint(out, s); err != nil {
		fmt.Print(s)
	}
}

var caseID = regexp.MustCompile(`\b(?:(?:dst|pol)-[a-z]+|inj)-\d+\b`)

// compatibility reads the ids of the cases that a service's COMPATIBILITY.md
// names, with the reason why our answer is another one.
func compatibility() (map[string]bool, error) {
	root, err := repo.Root()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(root, "services", "*", "COMPATIBILITY.md"))
	if err != nil {
		return nil, err
	}
	noted := map[string]bool{}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, id := range caseID.FindAllString(string(body), -1) {
			noted[id] = true
		}
	}
	return noted, nil
}
