package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/run"
)

// asWatcher makes the test binary be the watcher, so that these tests meet the
// whole process and can kill it.
const asWatcher = "WATCHER_TEST_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(asWatcher) != "" {
		os.Unsetenv(asWatcher) //nolint:errcheck // can't fail for this name
		run.Main("watcher", wire)
		return
	}
	os.Exit(m.Run())
}

// child is a watcher as a process of its own.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	mu    sync.Mutex
	lines []string
	done  chan struct{}
	code  int
}

func launch(t *testing.T, args ...string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, done: make(chan struct{})}
	c.cmd = exec.Command(self, args...)
	c.cmd.Env = append(os.Environ(), asWatcher+"=1")
	out, err := c.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.cmd.Stdout = c.cmd.Stderr
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			c.mu.Lock()
			c.lines = append(c.lines, lines.Text())
			c.mu.Unlock()
		}
		var exit *exec.ExitError
		if err := c.cmd.Wait(); errors.As(err, &exit) {
			c.code = exit.ExitCode()
		}
	}()
	t.Cleanup(c.kill)
	return c
}

func (c *child) output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.lines, "\n")
}

// kill is what the kernel does when memory runs out.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// stop is what a person does, and returns the exit code.
func (c *child) stop() int {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	<-c.done
	return c.code
}

var adminAddr = regexp.MustCompile(`msg="admin listening".* addr=(\S+)`)

// admin asks the admin server; "" while it can't be reached.
func (c *child) admin(path string) (int, string) {
	m := adminAddr.FindStringSubmatch(c.output())
	if m == nil {
		return 0, ""
	}
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, "http://"+m[1]+path, nil)
	if err != nil {
		return 0, ""
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(body)
}

// mesh is a directory, a bus, and a reader of the log as any front-end has it.
type mesh struct {
	t      *testing.T
	dir    string
	nats   *bustest.Local
	reader *bus.Reader
	bus    bus.Transport
}

func newMesh(t *testing.T) *mesh {
	t.Helper()
	m := &mesh{t: t, dir: t.TempDir(), nats: bustest.Server(t)}
	m.bus = m.nats.Join("")
	m.reader = bus.NewReader(m.bus, bus.ReaderConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.reader.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return m
}

func (m *mesh) watcher() *child {
	m.t.Helper()
	return launch(m.t, "-source", "dir", "-dir", m.dir, "-bus.servers", m.nats.Config().Servers[0], "-obs.admin", "127.0.0.1:0")
}

func (m *mesh) write(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mesh) remove(name string) {
	m.t.Helper()
	if err := os.Remove(filepath.Join(m.dir, name)); err != nil {
		m.t.Fatal(err)
	}
}

// patience is how long a test waits for what must come; machines may be slow.
const patience = time.Minute

func until(t *testing.T, c *child, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not in time: %s; the watcher said:\n%s", what, c.output())
		}
	}
}

func server(name string, port int) string {
	return fmt.Sprintf("{apiVersion: policy.linkerd.io/v1beta3, kind: Server, metadata: {name: %s, namespace: grove}, spec: {podSelector: {}, port: %d}}", name, port)
}

// port is the port of a Server's row; 0 when there is no row.
func (m *mesh) port(name string) uint32 {
	value, ok := m.reader.Row(busv1.Table_TABLE_SERVERS, bus.Key("grove", name))
	row := new(busv1.Server)
	if !ok || proto.Unmarshal(value, row) != nil {
		return 0
	}
	return row.GetPort()
}

func TestManifestsBecomeTheLog(t *testing.T) {
	m := newMesh(t)
	m.write("a.yaml", server("a", 80))
	w := m.watcher()
	until(t, w, "the first rows", func() bool { return m.port("a") == 80 })
	until(t, w, "ready", func() bool { code, _ := w.admin("/ready"); return code == http.StatusOK })

	m.write("a.yaml", server("a", 81))
	until(t, w, "an edit", func() bool { return m.port("a") == 81 })
	m.write("b.yaml", server("b", 82))
	until(t, w, "a new file", func() bool { return m.port("b") == 82 })
	m.remove("a.yaml")
	until(t, w, "a removed file", func() bool { return m.port("a") == 0 })

	// A change is counted after it was sent, so the last one may be seen first.
	for _, want := range []string{
		`weft_watcher_objects{kind="Server"} 1`,
		`weft_watcher_objects{kind="Pod"} 0`,
		"weft_watcher_leader 1",
		"weft_watcher_skipped_objects 0",
		`weft_watcher_changes_total{table="servers"} 3`,
		"weft_watcher_event_to_publish_seconds_count 3",
	} {
		until(t, w, "the metric "+want, func() bool {
			_, text := w.admin("/metrics")
			return strings.Contains(text, want+"\n")
		})
	}
	if code := w.stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0:\n%s", code, w.output())
	}
}

// TestKilledWatcherComesBack: while it is away the state is kept and marked
// stale; when it is back, only what changed meanwhile is sent.
func TestKilledWatcherComesBack(t *testing.T) {
	m := newMesh(t)
	m.write("a.yaml", server("a", 80))
	m.write("b.yaml", server("b", 80))
	m.write("c.yaml", server("c", 80))
	w := m.watcher()
	until(t, w, "the first rows", func() bool { return m.port("a") == 80 && m.port("b") == 80 && m.port("c") == 80 })
	before := m.reader.Status()

	w.kill()
	m.remove("a.yaml")
	m.write("b.yaml", server("b", 81))
	until(t, w, "stale", func() bool { return m.reader.Status().Stale })
	if m.port("a") != 80 || m.port("b") != 80 {
		t.Errorf("rows changed while nobody wrote: a %d, b %d", m.port("a"), m.port("b"))
	}

	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var changed []string
	complete := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for cut, err := range m.reader.Read(ctx) {
			if err != nil {
				return
			}
			if cut.Complete {
				close(complete)
				continue
			}
			mu.Lock()
			for _, c := range cut.Changes {
				changed = append(changed, c.Key)
			}
			mu.Unlock()
		}
	}()
	defer func() { cancel(); <-done }()
	<-complete
	keys := func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(changed, " ")
	}
	w = m.watcher()
	until(t, w, "the difference", func() bool { return m.port("a") == 0 && m.port("b") == 81 })
	after := m.reader.Status()
	if after.Epoch <= before.Epoch {
		t.Errorf("epoch %d after %d, want a higher one", after.Epoch, before.Epoch)
	}
	until(t, w, "live again", func() bool { return !m.reader.Status().Stale })
	// The reader holds a row before its consumer hears of it: what comes in between
	// shows when it has come to one more.
	until(t, w, "the removal consumed", func() bool { return strings.Contains(keys(), "grove/a") })
	m.write("d.yaml", server("d", 80))
	until(t, w, "one more row consumed", func() bool { return strings.Contains(keys(), "grove/d") })
	if got, want := keys(), "grove/b grove/a grove/d"; got != want {
		t.Errorf("changes after the restart: %q, want %q", got, want)
	}
}

// TestMalformedManifest: it is skipped and named, its last good row stays, over
// a restart too, and everything else goes on.
func TestMalformedManifest(t *testing.T) {
	m := newMesh(t)
	m.write("a.yaml", server("a", 80))
	w := m.watcher()
	until(t, w, "the first rows", func() bool { return m.port("a") == 80 })

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var last *busv1.Presence
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for p, err := range bus.Hear(ctx, m.bus) {
			if err != nil {
				return
			}
			mu.Lock()
			last = p
			mu.Unlock()
		}
	}()
	defer func() { cancel(); <-heard }()
	names := func(object, reason string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			for _, s := range last.GetSkipped() {
				if strings.HasSuffix(s.GetObject(), object) && strings.Contains(s.GetReason(), reason) {
					return last.GetLeader()
				}
			}
			return false
		}
	}
	m.write("a.yaml", server("a", 0))
	m.write("b.yaml", server("b", 81))
	m.write("c.yaml", "{unfinished: [")
	until(t, w, "the good one", func() bool { return m.port("b") == 81 })
	until(t, w, "the bad object named", names("Server grove/a", "spec.port: 0 is not between"))
	until(t, w, "the bad file named", names("c.yaml", "document 1: yaml"))
	if m.port("a") != 80 {
		t.Errorf("port %d, want 80 from the last good row", m.port("a"))
	}

	w.kill()
	w = m.watcher()
	m.write("b.yaml", server("b", 82))
	until(t, w, "the restarted watcher", func() bool { return m.port("b") == 82 })
	if m.port("a") != 80 {
		t.Errorf("port %d after a restart, want 80 from the last good row", m.port("a"))
	}
	m.write("a.yaml", server("a", 83))
	until(t, w, "the corrected one", func() bool { return m.port("a") == 83 })
}

// TestNATSRestart: changes made while the bus is away arrive when it is back.
func TestNATSRestart(t *testing.T) {
	m := newMesh(t)
	m.write("a.yaml", server("a", 80))
	w := m.watcher()
	until(t, w, "the first rows", func() bool { return m.port("a") == 80 })
	m.nats.Stop()
	m.write("a.yaml", server("a", 81))
	until(t, w, "stale", func() bool { return m.reader.Status().Stale })
	m.nats.Start()
	began := time.Now()
	until(t, w, "correct again", func() bool { return m.port("a") == 81 && !m.reader.Status().Stale })
	t.Logf("correct again after %v (promised: 10 s, on a machine that is not busy)", time.Since(began))
}

// TestBusComesLate: the watcher starts before its bus.
func TestBusComesLate(t *testing.T) {
	m := newMesh(t)
	m.nats.Stop()
	m.write("a.yaml", server("a", 80))
	w := m.watcher()
	until(t, w, "the source read", func() bool {
		_, text := w.admin("/metrics")
		return strings.Contains(text, `weft_watcher_waiting_objects`)
	})
	m.nats.Start()
	until(t, w, "the first rows", func() bool { return m.port("a") == 80 })
}

func TestNonsenseExits64(t *testing.T) {
	for name, args := range map[string][]string{
		"source":    {"-source", "ftp"},
		"no dir":    {"-source", "dir"},
		"dir, kube": {"-dir", "x"},
		"flag":      {"-sauce", "dir"},
		"bus":       {"-source", "dir", "-dir", ".", "-bus.servers", "http://x"},
	} {
		t.Run(name, func(t *testing.T) {
			c := launch(t, args...)
			<-c.done
			if c.code != 64 {
				t.Errorf("exit code %d, want 64:\n%s", c.code, c.output())
			}
		})
	}
}
