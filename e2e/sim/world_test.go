package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	destination "github.com/weftmesh/weft/services/destination/simtest"
	policy "github.com/weftmesh/weft/services/policy/simtest"
	watcher "github.com/weftmesh/weft/services/watcher/simtest"
)

// How large a world is: enough for every kind of neighbour, small enough for
// thousands of seeds.
const (
	services = 3
	watchers = 2
	fronts   = 2 // of each kind
	port     = 8080
)

// world is a cluster under simulation.
type world struct {
	ctx context.Context //nolint:containedctx // a test's world
	wg  sync.WaitGroup
	mem *bustest.Mem
	api *watcher.API

	watchers []*process[*watcher.Watcher]
	finders  []*process[*destination.Front]
	judges   []*process[*policy.Front]
	lose     func() // ends the present leadership
	leader   int

	pods  []int // that exist, by number
	next  int   // number of the next pod
	allow [services]bool
	proto [services]int

	clients []*client

	mu    sync.Mutex
	lines []string // since the last take
	wrong []string
}

// process is one process, which may be killed and started again.
type process[T any] struct {
	name string
	tr   bus.Transport
	it   T
	stop func()
	cut  bool
	// born counts its lives, for names.
	born int
}

// newWorld starts everything, with a leader and without faults.
func newWorld(ctx context.Context) *world {
	w := &world{ctx: ctx, mem: bustest.Memory(), api: watcher.NewAPI()}
	for s := range services {
		w.apply(serviceManifest(s))
		w.server(s)
		w.slice(s)
	}
	for i := range watchers {
		p := &process[*watcher.Watcher]{name: fmt.Sprint("watcher-", i)}
		w.watchers = append(w.watchers, p)
		w.startWatcher(p)
	}
	w.lose = w.watchers[0].it.Lead(ctx)
	synctest.Wait()
	for i := range fronts {
		f := &process[*destination.Front]{name: fmt.Sprint("destination-", i)}
		j := &process[*policy.Front]{name: fmt.Sprint("policy-", i)}
		w.finders, w.judges = append(w.finders, f), append(w.judges, j)
		w.startFinder(f)
		w.startJudge(j)
	}
	w.pass(3 * time.Second)
	return w
}

func (w *world) startWatcher(p *process[*watcher.Watcher]) {
	p.tr = w.mem.Join("")
	p.it = w.api.NewWatcher(p.tr)
	p.stop = w.run(p.it.Run)
}

func (w *world) startFinder(p *process[*destination.Front]) {
	p.tr, p.born, p.cut = w.mem.Join(""), p.born+1, false
	p.it = destination.New(p.tr)
	p.stop = w.run(p.it.Run)
	for s := range services {
		w.askEndpoints(p, s)
	}
}

func (w *world) startJudge(p *process[*policy.Front]) {
	p.tr, p.born, p.cut = w.mem.Join(""), p.born+1, false
	p.it = policy.New(p.tr)
	p.stop = w.run(p.it.Run)
	for _, pod := range w.pods {
		w.askPolicy(p, pod)
	}
}

// run runs a process; what it gives back kills it.
func (w *world) run(f func(context.Context)) (kill func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	w.wg.Go(func() { defer close(done); f(ctx) })
	return func() { cancel(); <-done }
}

// end kills everything that is left.
func (w *world) end(cancel func()) {
	cancel()
	w.wg.Wait()
}

// pass lets virtual time pass and everything come to rest.
func (w *world) pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

func (w *world) apply(manifest string) {
	if err := w.api.Apply(manifest); err != nil {
		w.fault("the simulation's own manifest: %v", err)
	}
}

// fault notes what must not be.
func (w *world) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// told notes what a client was told, for the transcript.
func (w *world) told(who, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, who+": "+what)
}

// take gives what clients were told since the last time, clients in order.
func (w *world) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	slices.SortStableFunc(lines, func(a, b string) int {
		a, _, _ = strings.Cut(a, ": ")
		b, _, _ = strings.Cut(b, ": ")
		return strings.Compare(a, b)
	})
	return strings.Join(lines, "\n")
}

// truth is which addresses a Service has.
func (w *world) truth(service int) []string {
	var out []string
	for _, pod := range w.pods {
		if pod%services == service {
			out = append(out, address(pod))
		}
	}
	slices.Sort(out)
	return out
}

// check holds every client's picture against the truth.
func (w *world) check() {
	for _, c := range w.clients {
		c.mu.Lock()
		switch have := slices.Sorted(maps.Keys(c.have)); {
		case c.pod < 0 && !slices.Equal(have, w.truth(c.service)):
			w.fault("%s has %v, want %v", c.name, have, w.truth(c.service))
		case c.pod >= 0 && c.verdict != w.verdict(c.pod):
			w.fault("%s is told %q, want %q", c.name, c.verdict, w.verdict(c.pod))
		}
		c.mu.Unlock()
	}
}
