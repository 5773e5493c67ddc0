package promises

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// marker is in every question to every tier, so that a capture can look for it.
const marker = "pomegranate"

// seen is what a load generator reports: its own counts since its start.
type seen struct {
	OK         int64         `json:"ok"`
	Denied     int64         `json:"denied"`
	Failed     int64         `json:"failed"`
	Late       int64         `json:"late"`
	Again      int64         `json:"again"`
	Slowest    time.Duration `json:"slowest_ns"`
	LastAnswer string        `json:"last_answer"`
	Failures   []failure     `json:"failures"`
	Cuts       []string      `json:"cuts"`
}

type failure struct {
	Began  time.Time `json:"began"`
	Took   string    `json:"took"`
	Reason string    `json:"reason"`
}

// report asks a load generator for its counts, through the API server.
func (b *bed) report(t *testing.T, namespace, pod, port string) seen {
	t.Helper()
	var s seen
	until(t, time.Minute, "the report of "+pod, func() error {
		return b.read(lasting(t), reportPath(namespace, pod, port), &s)
	})
	return s
}

func reportPath(namespace, pod, port string) string {
	return fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%s/proxy/", namespace, pod, port)
}

// generators of the shop's load, by port.
var generators = []struct{ port, over string }{{"8081", "kept connections"}, {"8082", "new connections"}}

// watch counts the shop's load from now on. A pod that generates it may be replaced
// meanwhile: each one's report is asked for every second, and the last one counts.
type watch struct {
	b     *bed
	began time.Time
	stop  func()

	mu   sync.Mutex
	pods map[string]*told
}

// told is what the generators of a pod have reported, by their place in generators:
// when the watch began, and last.
type told struct {
	first, last [2]seen
	slowest     [2]time.Duration
}

func (b *bed) watch(t *testing.T) *watch {
	t.Helper()
	w := &watch{b: b, began: time.Now(), pods: map[string]*told{}}
	for _, p := range b.pods(t, "shop", "app=load") {
		at := &told{}
		for i, g := range generators {
			at.first[i] = b.report(t, "shop", p.name, g.port)
		}
		at.last = at.first
		w.pods[p.name] = at
	}
	ctx, cancel := context.WithCancel(lasting(t))
	ended := make(chan struct{})
	w.stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(w.stop)
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = w.look(ctx, t) // the API server may be away
			}
		}
	}()
	return w
}

// look takes down what every pod of the load says now.
func (w *watch) look(ctx context.Context, t *testing.T) error {
	t.Helper()
	pods, err := w.b.tryPods(t, "shop", "app=load")
	if err != nil {
		return err
	}
	answered := false
	for _, p := range pods {
		for i, g := range generators {
			var s seen
			if w.b.read(ctx, reportPath("shop", p.name, g.port), &s) != nil {
				continue // it begins or has ended
			}
			answered = true
			w.mu.Lock()
			at := w.pods[p.name]
			if at == nil {
				at = &told{}
				w.pods[p.name] = at
			}
			at.last[i], at.slowest[i] = s, max(at.slowest[i], s.Slowest)
			w.mu.Unlock()
		}
	}
	if !answered {
		return errors.New("no pod of the load reports")
	}
	return nil
}

// sum adds up what a generator of all pods has seen since the watch began.
func (w *watch) sum(generator int) seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all seen
	for _, at := range w.pods {
		old, now := at.first[generator], at.last[generator]
		all.OK += now.OK - old.OK
		all.Denied += now.Denied - old.Denied
		all.Failed += now.Failed - old.Failed
		all.Late += now.Late - old.Late
		all.Again += now.Again - old.Again
		all.Slowest = max(all.Slowest, at.slowest[generator])
		all.Failures = append(all.Failures, now.Failures[max(0, len(now.Failures)-int(now.Failed-old.Failed)):]...)
		all.Cuts = append(all.Cuts, now.Cuts[max(0, len(now.Cuts)-int(now.Again-old.Again)):]...)
	}
	return all
}

// flowing is how many more requests of each kind must go well before a promise
// counts as kept.
const flowing = 20

// end waits until requests go well after all that was done, prints the counts, and
// fails the test if a request failed.
func (w *watch) end(t *testing.T) {
	t.Helper()
	w.endExcept(t, func(failure) bool { return false })
}

// endExcept does the same, but lets those failures pass that nobody could prevent.
func (w *watch) endExcept(t *testing.T, lost func(failure) bool) {
	t.Helper()
	marks := [2]seen{w.sum(0), w.sum(1)}
	until(t, 2*time.Minute, "requests that end", func() error {
		if err := w.look(lasting(t), t); err != nil {
			return err
		}
		for i, g := range generators {
			if now := w.sum(i); now.OK+now.Failed < marks[i].OK+marks[i].Failed+flowing {
				return errors.New("none over " + g.over)
			}
		}
		return nil
	})
	w.stop()
	for i, g := range generators {
		s := w.sum(i)
		count, failed := s.OK+s.Denied+s.Failed, s.Denied+s.Failed
		t.Logf("%s: %d requests, %d failed, slowest %s, %d not begun for want of time (%.0f/s)", g.over,
			count, failed, s.Slowest.Round(time.Millisecond), s.Late, float64(count)/time.Since(w.began).Seconds())
		if s.Again > 0 {
			t.Logf("  %d needed a second connection to the ledger: %s", s.Again, strings.Join(s.Cuts, "; "))
		}
		passed := int64(0)
		for n, f := range s.Failures {
			if lost(f) {
				passed++
			}
			if n < 12 {
				t.Logf("  %s +%s: %s", f.Began.Format("15:04:05.000"), f.Took, f.Reason)
			}
		}
		if passed > 0 {
			t.Logf("  %d of them were lost with who had them", passed)
		}
		if failed > passed {
			t.Errorf("%s: %d of %d requests failed that need not have", g.over, failed-passed, count)
		}
	}
}
