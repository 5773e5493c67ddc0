package scale_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/e2e/bench/scale"
	"github.com/weftmesh/weft/e2e/internal/proc"
)

// mesh is a NATS server, the writer of a synthetic cluster's log, and whatever
// processes a bench starts.
type mesh struct {
	t      *testing.T
	size   scale.Size
	nats   *server.Server
	writer *bus.Writer
	reader *bus.Reader
	ready  map[int]bool // what flip said last
	// gone ends the writer's process.
	gone context.CancelFunc
}

// patience is how long anything may take that must happen.
const patience = 2 * time.Minute

// start begins a log that holds the rows of a cluster.
func start(t *testing.T, pods int) *mesh {
	t.Helper()
	m := bare(t)
	m.size = scale.Size{Pods: pods}
	tr := m.join("watcher")
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	m.gone = func() { cancel(); tr.Close() }
	m.reader = bus.NewReader(tr, bus.ReaderConfig{})
	m.writer = bus.NewWriter(tr, m.reader, bus.WriterConfig{})
	go func() { _ = m.reader.Run(ctx) }()
	go func() { _ = m.writer.Run(ctx) }()
	if err := m.writer.Lead(ctx, m.size.Rows()); err != nil {
		t.Fatal(err)
	}
	return m
}

// bare is a NATS server alone.
func bare(t *testing.T) *mesh {
	t.Helper()
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(patience) {
		t.Fatal("the NATS server does not answer")
	}
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	return &mesh{t: t, nats: srv}
}

// join connects one more process to the bus, within this one.
func (m *mesh) join(name string) bus.Transport {
	m.t.Helper()
	tr, err := bus.Connect(m.t.Context(), bus.Config{Servers: []string{m.nats.ClientURL()}}, name, prometheus.NewRegistry())
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(tr.Close)
	return tr
}

// append writes changes to the log as those of now.
func (m *mesh) append(changes ...bus.Change) {
	m.t.Helper()
	if _, err := m.writer.Append(m.t.Context(), changes, time.Now()); err != nil {
		m.t.Fatal(err)
	}
}

// launch starts a front-end; Ready waits for it.
func (m *mesh) launch(name string, args ...string) *proc.Process {
	m.t.Helper()
	return proc.Launch(m.t, name, nil, append(args, "-bus.servers", m.nats.ClientURL())...)
}

// destination starts one and says where it listens.
func (m *mesh) destination(args ...string) (p *proc.Process, addr string) {
	m.t.Helper()
	addr = proc.FreePort(m.t)
	p = m.launch("destination", append(args, "-listen", addr)...)
	p.Ready()
	return p, addr
}

// tap counts the payload on the bus by subject, as a client of NATS gets it.
type tap struct {
	conn                            *nats.Conn
	log, asks, answers, other, msgs atomic.Int64
}

// tapped listens to everything from now on.
func (m *mesh) tapped() *tap {
	m.t.Helper()
	conn, err := nats.Connect(m.nats.ClientURL())
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(conn.Close)
	c := &tap{conn: conn}
	sub, err := conn.Subscribe(">", func(msg *nats.Msg) {
		n := int64(len(msg.Data))
		for k, values := range msg.Header {
			n += int64(len(k) + len(strings.Join(values, "")) + 4) // ": " and the end of the line
		}
		switch {
		case strings.HasSuffix(msg.Subject, ".log") && msg.Header.Get("K") == "beacon":
		case strings.HasSuffix(msg.Subject, ".log"):
			c.log.Add(n)
			c.msgs.Add(1)
		case strings.HasSuffix(msg.Subject, ".ask"):
			c.asks.Add(n)
		case strings.HasPrefix(msg.Subject, "_INBOX"):
			c.answers.Add(n)
		default:
			c.other.Add(n)
		}
	})
	if err != nil {
		m.t.Fatal(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		m.t.Fatal(err)
	}
	c.flush(m.t)
	return c
}

// flush waits until what was sent before has been counted.
func (c *tap) flush(t *testing.T) {
	t.Helper()
	if err := c.conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

var (
	heapLine  = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)
	stackLine = regexp.MustCompile(`(?m)^# Stack = (\d+) /`)
)

// heapNow is what a process holds after a collection, in MB.
func heapNow(t *testing.T, p *proc.Process) float64 {
	t.Helper()
	return heapPage(t, p, heapLine)
}

// stacksNow are those of all goroutines, in MB.
func stacksNow(t *testing.T, p *proc.Process) float64 {
	t.Helper()
	return heapPage(t, p, stackLine)
}

func heapPage(t *testing.T, p *proc.Process, line *regexp.Regexp) float64 {
	t.Helper()
	text := page(t, p, "/debug/pprof/heap?gc=1&debug=1")
	found := line.FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("the heap profile has no line %s", line)
	}
	if *keep != "" {
		profile(t, p, "heap.txt", text) // has the sizes of stacks, too
		profile(t, p, "heap", page(t, p, "/debug/pprof/heap"))
	}
	n, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return n / 1e6
}

func profile(t *testing.T, p *proc.Process, kind, body string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(*keep, p.Name+"."+kind), []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
}

// profileCPU keeps a profile of the next seconds, if profiles are wanted; what it
// returns waits for it.
func profileCPU(t *testing.T, p *proc.Process, kind string, seconds int) (wait func()) {
	t.Helper()
	if *keep == "" {
		return func() {}
	}
	got := make(chan string, 1)
	go func() {
		defer close(got) // empty if the page could not be had, which ends the test
		got <- page(t, p, fmt.Sprintf("/debug/pprof/profile?seconds=%d", seconds))
	}()
	return func() { profile(t, p, kind, <-got) }
}

// page is one of the admin server, for which a process of a gigabyte on a busy
// machine may take its time.
func page(t *testing.T, p *proc.Process, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.Admin+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Timeout: patience}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", path, resp.Status, err)
	}
	return string(body)
}

// atRest is the heap once values have come to rest: until it falls no more.
func atRest(t *testing.T, p *proc.Process) float64 {
	t.Helper()
	least, since := heapNow(t, p), 0
	if *pods < fullSize {
		return least // nobody judges it
	}
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

// rss is the memory of a process as the system counts it, in MB.
func rss(t *testing.T, p *proc.Process) float64 {
	t.Helper()
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kib, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib * 1024 / 1e6
		}
	}
	t.Fatal("the system says nothing of the memory")
	return 0
}

// cpu is the processor time that a process has used. The kernel counts in
// hundredths of a second on every Linux that Go runs on.
func cpu(t *testing.T, p *proc.Process) time.Duration {
	t.Helper()
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	// After the name, which may hold spaces: state is field 3, utime 14, stime 15.
	f := strings.Fields(string(body[strings.LastIndexByte(string(body), ')')+1:]))
	var ticks time.Duration
	for _, field := range f[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}

// eventually polls, for what must come.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(patience)
	defer end.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
}
