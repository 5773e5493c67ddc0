package soak

import (
	"context"
	"fmt"
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
}

func (h held) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %.1f MB", h.routines, h.files, h.bytes/1e6)
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
	return h, nil
}

// rest waits until what the proxies hold has not become less for a while: idle
// connections go, and what is cached.
func rest(t *testing.T, proxies []*proc.Process) []held {
	t.Helper()
	least := make([]held, len(proxies))
	last := time.Now() // that something went
	for tick := time.NewTicker(100 * time.Millisecond); time.Since(last) < 3*time.Second; <-tick.C {
		for i, p := range proxies {
			h, err := holds(p)
			if err != nil {
				t.Fatal(err)
			}
			if was := least[i]; was.routines == 0 || h.routines < was.routines || h.files < was.files {
				last = time.Now()
				if was.routines == 0 {
					least[i] = h
				}
			}
			least[i] = held{min(least[i].routines, h.routines), min(least[i].files, h.files), h.bytes}
		}
	}
	return least
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
