package scale_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	"github.com/weftmesh/weft/e2e/bench/scale"
	"github.com/weftmesh/weft/e2e/internal/proc"
)

var (
	pods = flag.Int("pods", 1500, "pods of the synthetic cluster; the budgets are for 150000")
	out  = flag.String("json", "", "file to write the results to as JSON")
	keep = flag.String("profiles", "", "directory to write heap profiles to")
)

// fullSize is what the budgets of bytes and times are for.
const fullSize = 150_000

// result is one line of the table.
type result struct {
	What   string  `json:"what"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Budget float64 `json:"budget,omitempty"`
}

var results []result

// report notes a value, and fails the test if it is over its budget; 0 is none.
func report(t *testing.T, what string, value float64, unit string, budget float64) {
	t.Helper()
	results = append(results, result{what, value, unit, budget})
	if budget > 0 && value > budget {
		t.Errorf("%s: %.4g %s, want %.4g at most", what, value, unit, budget)
	}
}

// atFullSize is a budget that holds for the full size only.
func atFullSize(budget float64) float64 {
	if *pods < fullSize {
		return 0
	}
	return budget
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	fmt.Printf("\n%-62s %12s %-6s %10s\n", fmt.Sprintf("%d pods", *pods), "measured", "", "budget")
	for _, r := range results {
		budget := ""
		if r.Budget > 0 {
			budget = fmt.Sprintf("%.4g", r.Budget)
		}
		fmt.Printf("%-62s %12.4g %-6s %10s\n", r.What, r.Value, r.Unit, budget)
	}
	if *out != "" {
		body, err := json.MarshalIndent(results, "", "  ")
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

// mesh is a NATS server and the writer of a synthetic cluster's log.
type mesh struct {
	nats   *bustest.Local
	writer *bus.Writer
	reader *bus.Reader
}

func start(t *testing.T) *mesh {
	t.Helper()
	m := &mesh{nats: bustest.Server(t)}
	tr := m.nats.Join("")
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	m.reader = bus.NewReader(tr, bus.ReaderConfig{})
	m.writer = bus.NewWriter(tr, m.reader, bus.WriterConfig{})
	go func() { _ = m.reader.Run(ctx) }()
	go func() { _ = m.writer.Run(ctx) }()
	if err := m.writer.Lead(ctx, scale.Size{Pods: *pods}.Rows()); err != nil {
		t.Fatal(err)
	}
	return m
}

// front starts a front-end and says how long it took to be ready.
func (m *mesh) front(t *testing.T, name string, args ...string) (*proc.Process, time.Duration) {
	t.Helper()
	began := time.Now()
	p := proc.Launch(t, name, nil, append(args, "-bus.servers", m.nats.Config().Servers[0])...)
	p.Ready()
	return p, time.Since(began)
}

var heapLine = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// liveHeap is what a process holds after a collection, in MB, once values have
// come to rest: until it falls no more.
func liveHeap(t *testing.T, p *proc.Process) float64 {
	t.Helper()
	least, since := heapNow(t, p), 0
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for tries := 0; since < 3 && tries < 60; tries++ {
		<-tick.C
		now := heapNow(t, p)
		if since++; now < least*0.99 {
			least, since = now, 0
		}
	}
	return least
}

func heapNow(t *testing.T, p *proc.Process) float64 {
	t.Helper()
	page, err := p.Get("/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		t.Fatal(err)
	}
	found := heapLine.FindStringSubmatch(page)
	if found == nil {
		t.Fatal("the heap profile names no HeapAlloc")
	}
	if *keep != "" {
		raw, err := p.Get("/debug/pprof/heap")
		if err == nil {
			err = os.WriteFile(filepath.Join(*keep, p.Name+".heap"), []byte(raw), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	n, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return n / 1e6
}

func TestColdStart(t *testing.T) {
	m := start(t)
	for _, name := range []string{"destination", "policy"} {
		listen := proc.FreePort(t)
		p, took := m.front(t, name, "-listen", listen)
		report(t, name+": start to ready", took.Seconds(), "s", atFullSize(2))
		report(t, name+": live heap", liveHeap(t, p), "MB", atFullSize(180))
		p.Stop()
	}
}
