package soak

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// held is what a process holds.
type held struct {
	routines, files int
	bytes           float64 // of memory
	own             float64 // of those, not the binary's
	live            float64 // of those, reachable; 0 if not looked at
}

func (h held) String() string {
	text := fmt.Sprintf("%d goroutines, %d descriptors, %.1f MB", h.routines, h.files, h.bytes/1e6)
	if h.live > 0 {
		text += fmt.Sprintf(", %.1f its own, %.2f reachable", h.own/1e6, h.live/1e6)
	}
	return text
}

// holds asks a proxy for its own metrics.
func holds(p *proc.Process) (held, error) {
	text, err := p.Get("/metrics")
	if err != nil {
		return held{}, err
	}
	var h held
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch name {
		case "go_goroutines":
			h.routines = int(n)
		case "process_open_fds":
			h.files = int(n)
		case "process_resident_memory_bytes":
			h.bytes = n
		}
	}
	if h.routines == 0 || h.files == 0 || h.bytes == 0 {
		return h, fmt.Errorf("the metrics of %s lack goroutines, descriptors or memory", p.Admin)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return h, fmt.Errorf("looking at a proxy: %w", err)
	}
	_, own, _ := strings.Cut(string(status), "RssAnon:")
	if _, err := fmt.Sscan(own, &h.own); err != nil {
		return h, fmt.Errorf("reading how much memory is a proxy's own: %w", err)
	}
	h.own *= 1024
	return h, nil
}

// rest waits until what the proxies hold has not become less for as long: idle
// connections go, and what is cached, and memory goes back to the system.
func rest(t *testing.T, proxies []*proc.Process, long time.Duration) []held {
	t.Helper()
	least := make([]held, len(proxies))
	last := time.Now() // that something went
	// Asked more often, a proxy would not rest.
	for tick := time.NewTicker(long / 20); time.Since(last) < long; <-tick.C {
		for i, p := range proxies {
			h, err := holds(p)
			if err != nil {
				t.Fatal(err)
			}
			was := least[i]
			if was.routines == 0 {
				least[i], last = h, time.Now()
				continue
			}
			if h.routines < was.routines || h.files < was.files || h.own < was.own-slack {
				last = time.Now()
			}
			least[i] = held{routines: min(was.routines, h.routines), files: min(was.files, h.files), bytes: min(was.bytes, h.bytes), own: min(was.own, h.own)}
		}
	}
	for i, p := range proxies {
		least[i].live = reachable(t, p)
	}
	return least
}

// reachable is what is left of a proxy's heap after collections, in bytes. What is
// in pools dies with the second.
func reachable(t *testing.T, p *proc.Process) float64 {
	t.Helper()
	var n float64
	for range 3 {
		_, after, _ := strings.Cut(string(profile(t, p, "&debug=1")), "# HeapAlloc = ")
		line, _, _ := strings.Cut(after, "\n")
		var err error
		if n, err = strconv.ParseFloat(line, 64); err != nil {
			t.Fatalf("reading a heap profile: %v", err)
		}
	}
	return n
}

// keep writes a proxy's heap profile to a file, if asked to.
func keep(t *testing.T, p *proc.Process, name string) {
	t.Helper()
	if *profiles == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*profiles, name), profile(t, p, ""), 0o600); err != nil {
		t.Fatal(err)
	}
}

// profile collects garbage and reads a heap profile, which may be long.
func profile(t *testing.T, p *proc.Process, how string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.Admin+"/debug/pprof/heap?gc=1"+how, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Timeout: patience}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, 256<<20))
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("reading a heap profile: %s, %v", res.Status, err)
	}
	return body
}

// slope is how a proxy's memory changes while there is traffic.
type slope struct{ mean, perMinute float64 }

// watch follows the memory of the proxies, from half of the time on: before, pools
// fill. What it returns waits for the end.
func watch(ctx context.Context, proxies []*proc.Process) func() []slope {
	type point struct{ minutes, bytes float64 }
	points := make([][]point, len(proxies))
	done := make(chan struct{})
	began := time.Now()
	until, _ := ctx.Deadline()
	go func() {
		defer close(done)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if time.Since(began) < until.Sub(began)/2 {
				continue
			}
			for i, p := range proxies {
				if h, err := holds(p); err == nil {
					points[i] = append(points[i], point{time.Since(began).Minutes(), h.bytes})
				}
			}
		}
	}()
	return func() []slope {
		<-done
		var out []slope
		for _, all := range points {
			// The line that fits best, as a share of the mean.
			var n, x, y, xx, xy float64
			for _, p := range all {
				n, x, y, xx, xy = n+1, x+p.minutes, y+p.bytes, xx+p.minutes*p.minutes, xy+p.minutes*p.bytes
			}
			var s slope
			if d := n*xx - x*x; n > 2 && d > 0 {
				s = slope{y / n, (n*xy - x*y) / d / (y / n)}
			}
			out = append(out, s)
		}
		return out
	}
}
