package proxy

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

var (
	rounds  = flag.Int("rounds", 2, "how often each proxy has its turn in each row")
	round   = flag.Duration("round", 100*time.Millisecond, "length of a turn: once for the load, once more for the latency")
	rate    = flag.Int("rate", 200, "requests a second while the latency is measured; 0 measures none")
	volume  = flag.Int("volume", 16, "MB of bytes that are no HTTP, in each round")
	settle  = flag.Duration("settle", 0, "how long proxies rest before their memory is looked at; less than 15s gives no verdict")
	calm    = flag.Int("calm", 8, "connections before a burst of a hundred times as many")
	anew    = flag.Int("launches", 1, "how often every process of the table is started anew; each launch has its share of the rounds")
	only    = flag.String("only", "", "regular expression of the rows to measure, and nothing else")
	beside  = flag.String("beside", "", "the only peer to measure, such as nginx")
	budgets = flag.Bool("assert", false, "fail if weft-proxy costs more than its budgets")
	out     = flag.String("json", "", "file to write the results to as JSON")
)

// ours is weft-proxy's name in the table; net/http's is its reference; direct is no
// proxy at all.
const ours, reference, direct = "weft-proxy", "net/http", "none"

// The budgets: what a request through weft-proxy may cost in processor time,
// relative to net/http's pair in the same run.
var budgetOf = [2]float64{1, 1}

// subject is a proxy that is measured, or why it is not.
type subject struct {
	name, missing string
	hops          [3]hop // one, two, and two for gRPC
	bytes         hop    // two, for what is not HTTP
}

// hop is where a request enters, where it wants to go, and the processes that carry it.
type hop struct {
	addr, target string
	pids         []int
}

// row is a kind of traffic. With streams it is gRPC, so many calls at once on each
// connection.
type row struct{ hops, conns, streams int }

var rows = []row{{1, 16, 0}, {1, 128, 0}, {2, 16, 0}, {2, 128, 0}, {2, 8, 16}}

func (r row) String() string {
	if r.streams > 0 {
		return fmt.Sprintf("two hops, mTLS, gRPC, %d streams", r.conns*r.streams)
	}
	if r.hops == 1 {
		return fmt.Sprintf("one hop, HTTP/1.1, %d connections", r.conns)
	}
	return fmt.Sprintf("two hops, mTLS, HTTP/1.1, %d connections", r.conns)
}

// entry is which of a subject's ways in it takes.
func (r row) entry() int {
	if r.streams > 0 {
		return 2
	}
	return r.hops - 1
}

// result is one line of the table. Each value is the median of the rounds, but the
// quantiles are of all requests of calm turns (see delays), and the memory is the most
// that was seen. What is relative is the median of what it was in each round (see paired).
type result struct {
	Row         string  `json:"row"`
	Proxy       string  `json:"proxy"`
	Missing     string  `json:"missing,omitempty"`
	CPU         float64 `json:"cpuMicrosecondsPerRequest"`
	Throughput  float64 `json:"requestsPerSecond"`
	P50         float64 `json:"p50Microseconds"`
	P99         float64 `json:"p99Microseconds"`
	RSS         float64 `json:"rssMB"`
	ToBest      float64 `json:"cpuToBestPeer"`
	ToReference float64 `json:"cpuToNetHTTP"`

	cpus, throughputs []float64
	late              delays
}

var results []*result

// table has a row's results, ours first.
var table = map[row][]*result{}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		fmt.Fprintln(os.Stderr, play(role))
		os.Exit(1)
	}
	flag.Parse()
	code := m.Run()
	printTable()
	if *out != "" {
		body, err := json.MarshalIndent(map[string]any{"results": results, "streams": streams, "memory": shares, "verdicts": verdicts, "calm": calmed}, "", "  ")
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

func TestProxies(t *testing.T) {
	for _, name := range []string{"weft", "watcher", "destination", "policy", "identity", "weft-proxy"} {
		proc.Binary(t, name) // may be built, which takes all processors
	}
	if err := pinSelf(); err != nil {
		t.Fatal(err)
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		t.Fatalf("-only: %v", err)
	}
	wanted := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !pattern.MatchString(r.String()) })
	switch {
	case len(wanted) == 0:
		t.Fatalf("-only: no row is like %q", *only)
	case *beside != "" && !slices.Contains(peerNames, *beside):
		t.Fatalf("-beside: %q is none of %q", *beside, peerNames)
	case *anew < 1:
		t.Fatalf("-launches: %d, want 1 at least", *anew)
	}
	for i := range *anew {
		// What a process costs depends on where its memory happens to be.
		if !t.Run(fmt.Sprint("launch ", i+1), func(t *testing.T) { launchAll(t, wanted) }) {
			return
		}
	}
	if *only == "" {
		concludeStreams()
	}
	for _, r := range wanted {
		conclude(table[r])
		judge(r, table[r])
		results = append(results, table[r]...)
		if mine := table[r][0]; *budgets && mine.ToReference > budgetOf[r.hops-1] {
			t.Errorf("%s: %.3g times the processor time of %s, want %.3g at most", r, mine.ToReference, reference, budgetOf[r.hops-1])
		}
	}
}

// launchAll starts every process and lets it have its share of the rounds.
func launchAll(t *testing.T, wanted []row) {
	t.Helper()
	again(t, "application", loadCore, layout{})
	listens(t, application)
	listens(t, booksIP+":8080")
	again(t, "spouting", loadCore, layout{})
	listens(t, spouting)
	bare := hop{addr: application, target: application}
	subjects := append(append([]subject{newMesh(t)}, newPeers(t)...), subject{name: direct, hops: [3]hop{bare, bare, bare}})
	for _, r := range wanted {
		if len(table[r]) > 0 {
			continue // it is not the first launch
		}
		for _, s := range subjects {
			table[r] = append(table[r], &result{Row: r.String(), Proxy: s.name, Missing: s.missing})
		}
	}
	for n := range turns() {
		for _, r := range wanted {
			takeTurns(t, r, subjects, n%2 == 1)
		}
	}
	if *only == "" {
		measureStreams(t, subjects)
	}
}

// turns are a launch's share of the rounds.
func turns() int { return max(1, *rounds / *anew) }

func printTable() {
	var last string
	for _, r := range results {
		if r.Row != last {
			last = r.Row
			fmt.Printf("\n%-46s %8s %8s %8s %8s %7s %10s %12s\n", r.Row, "CPU us", "req/s", "p50 us", "p99 us", "RSS MB", "/best peer", "/"+reference)
		}
		if r.Missing != "" {
			fmt.Printf("  %-44s %s\n", r.Proxy, r.Missing)
			continue
		}
		fmt.Printf("  %-44s %8.1f %8.0f %8.0f %8.0f %7.1f %10.2f %12.2f\n", r.Proxy, r.CPU, r.Throughput, r.P50, r.P99, r.RSS, r.ToBest, r.ToReference)
	}
	printStreams()
	printMemory()
	printVerdicts()
	printCalmness()
	if len(results) > 0 {
		fmt.Printf("\n%d rounds of %s in %d launches, latency at %d/s, proxies on processor %d, load and application on %d, GOMAXPROCS=1\n%s\n",
			*rounds, *round, *anew, *rate, proxyCore, loadCore,
			"CPU is of all the proxies that a request passes; both proxies of two hops share the processor.")
	}
}
