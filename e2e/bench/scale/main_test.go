package scale_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

var (
	pods = flag.Int("pods", 1500, "pods of the synthetic cluster; the budgets are for 150000")
	only = flag.String("only", "", "names of the benches to run, commas between; empty means all")
	out  = flag.String("json", "", "file to write the results to as JSON")
	keep = flag.String("profiles", "", "directory to write heap and CPU profiles to")
)

// fullSize is what the budgets of bytes and times are for.
const fullSize = 150_000

// result is one line of the table.
type result struct {
	Bench  string  `json:"bench"`
	What   string  `json:"what"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Budget float64 `json:"budget,omitempty"`
	// Asserted: the run fails if the value is over the budget. Times are only
	// reported: they say more of the machine than of the code.
	Asserted bool `json:"asserted,omitempty"`
}

// run is all of them, and what they were measured on.
type run struct {
	Command string    `json:"command"`
	Commit  string    `json:"commit"`
	Pods    int       `json:"pods"`
	Cores   int       `json:"cores"`
	Load    [2]string `json:"load"` // of the machine, before and after
	When    time.Time `json:"when"`
	Results []result  `json:"results"`
}

var results []result

// bench skips a bench that was not asked for.
func bench(t *testing.T, name string) *sheet {
	t.Helper()
	if *only != "" && !strings.Contains(","+*only+",", ","+name+",") {
		t.Skip("not asked for by -only")
	}
	return &sheet{t, name}
}

// sheet takes down the results of one bench.
type sheet struct {
	t    *testing.T
	name string
}

// say notes a value beside what is wanted of it; 0 is nothing.
func (s *sheet) say(what string, value float64, unit string, budget float64) {
	s.t.Helper()
	results = append(results, result{Bench: s.name, What: what, Value: value, Unit: unit, Budget: budget})
	s.t.Logf("%s: %.4g %s", what, value, unit)
}

// took notes a time.
func (s *sheet) took(what string, d, budget time.Duration) {
	s.t.Helper()
	s.say(what, float64(d)/1e6, "ms", float64(budget)/1e6)
}

// most notes a value and fails the test if it is over its budget.
func (s *sheet) most(what string, value float64, unit string, budget float64) {
	s.t.Helper()
	s.say(what, value, unit, budget)
	results[len(results)-1].Asserted = true
	if value > budget {
		s.t.Errorf("%s: %.6g %s, want %.6g at most", what, value, unit, budget)
	}
}

// exactly is for what is counted.
func (s *sheet) exactly(what string, value, want int, unit string) {
	s.t.Helper()
	s.say(what, float64(value), unit, float64(want))
	results[len(results)-1].Asserted = true
	if value != want {
		s.t.Errorf("%s: %d %s, want exactly %d", what, value, unit, want)
	}
}

// atFullSize is most at the size that the budget is for, and say below.
func (s *sheet) atFullSize(what string, value float64, unit string, budget float64) {
	s.t.Helper()
	if *pods < fullSize {
		s.say(what, value, unit, 0)
		return
	}
	s.most(what, value, unit, budget)
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(b)); err == nil && len(f) > 0 {
		return f[0]
	}
	return "unknown"
}

func commit() string {
	b, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=9").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

func TestMain(m *testing.M) {
	flag.Parse()
	r := run{
		Command: fmt.Sprintf("make bench PODS=%d ONLY=%s", *pods, *only), Commit: commit(), Pods: *pods, Cores: runtime.NumCPU(), When: time.Now().UTC(),
	}
	r.Load[0] = load()
	code := m.Run()
	r.Load[1], r.Results = load(), results
	fmt.Print(table(r))
	if *out != "" {
		body, err := json.MarshalIndent(r, "", "  ")
		if err == nil {
			err = os.WriteFile(*out, append(body, '\n'), 0o600)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// table is Markdown, to be put into README.md as it is.
func table(r run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n`%s` at commit %s, %s, %d cores, load of the machine %s before and %s after\n\n",
		r.Command, r.Commit, r.When.Format("2 Jan 2006 15:04 UTC"), r.Cores, r.Load[0], r.Load[1])
	fmt.Fprintf(&b, "| bench | what | measured | | budget |\n|---|---|---:|---|---:|\n")
	for _, one := range r.Results {
		budget := ""
		if one.Budget > 0 || one.Asserted {
			budget = fmt.Sprintf("%.4g", one.Budget)
		}
		if budget != "" && !one.Asserted {
			budget = "(" + budget + ")"
		}
		fmt.Fprintf(&b, "| %s | %s | %.4g | %s | %s |\n", one.Bench, one.What, one.Value, one.Unit, budget)
	}
	return b.String() + "\nBudgets in brackets are reported, the others asserted.\n"
}
