package robust

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/chronicle"
	"github.com/weftmesh/weft/e2e/internal/proc"
)

// How large the mesh is: enough for every fault to have a bystander.
const (
	watchers = 2
	fronts   = 2 // of each kind
)

// house is the mesh that is broken.
type house struct {
	t   *testing.T
	log *chronicle.Log
	api *api
	bus *bus

	watchers []*replica
	fronts   []*replica // destinations, then policies
	deaf     []func()   // ends clients that never read
}

// replica is one process in all its lives.
type replica struct {
	house *house
	name  string
	kind  string // the binary
	flags []string
	wires []*wire // one to each NATS server

	mu    sync.Mutex
	born  int
	addr  string
	p     *proc.Process
	still bool // stopped by a signal
}

// newHouse makes a mesh whose processes have not started yet, but for NATS.
func newHouse(t *testing.T, lease time.Duration, nodes func(*testing.T, plan) node) *house {
	t.Helper()
	t.Helper()
	h := &house{t: t, log: chronicle.New(), api: newAPI(t, lease)}
	h.bus = newBus(t, nodes)
	kubeconfig := h.api.kubeconfig()
	for i := range watchers {
		name := fmt.Sprint("watcher-", i)
		h.watchers = append(h.watchers, h.newReplica(name, "watcher", "-source", "kube", "-kubeconfig", kubeconfig, "-identity", name))
	}
	for _, kind := range []string{"destination", "policy"} {
		for i := range fronts {
			h.fronts = append(h.fronts, h.newReplica(fmt.Sprint(kind, "-", i), kind))
		}
	}
	return h
}

// start starts every process and waits until all are ready.
func (h *house) start() {
	for _, r := range h.all() {
		r.start()
	}
	for _, r := range h.all() {
		r.p.Ready()
	}
}

// stop ends every process, all at once.
func (h *house) stop() {
	var wg sync.WaitGroup
	for _, r := range h.all() {
		wg.Go(r.p.Stop)
	}
	wg.Wait()
}

func (h *house) newReplica(name, kind string, flags ...string) *replica {
	h.t.Helper()
	r := &replica{house: h, name: name, kind: kind, flags: flags}
	var urls []string
	for _, to := range h.bus.client {
		w := newWire(h.t, func() string { return to })
		r.wires = append(r.wires, w)
		urls = append(urls, "nats://"+w.Addr)
	}
	r.flags = append(r.flags, "-bus.servers", strings.Join(urls, ","))
	return r
}

func (h *house) all() []*replica { return append(append([]*replica{}, h.watchers...), h.fronts...) }

// start begins a life. A front-end has an address of its own in each, so that a
// client knows which life answered.
func (r *replica) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	flags := r.flags
	r.born++
	if r.kind != "watcher" {
		r.addr = proc.FreePort(r.house.t)
		flags = append(append([]string{}, flags...), "-listen", r.addr)
	}
	r.p, r.still = proc.Launch(r.house.t, r.kind, nil, flags...), false
}

// where is the present life's address and name.
func (r *replica) where() (addr, life string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addr, fmt.Sprintf("%s.%d", r.name, r.born)
}

func (r *replica) kill() { r.p.Kill() }

func (r *replica) pause() {
	r.p.Signal(syscall.SIGSTOP)
	r.still = true
}

func (r *replica) resume() {
	if r.still {
		r.p.Signal(syscall.SIGCONT)
		r.still = false
	}
}

func (r *replica) wire(state int) {
	for _, w := range r.wires {
		w.set(state)
	}
}

// metric reads one of the process's metrics, the sum over its labels.
func (r *replica) metric(name string) (float64, error) {
	page, err := r.p.Get("/metrics")
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, false
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		f := strings.Fields(line)
		n, err := strconv.ParseFloat(f[len(f)-1], 64)
		if err != nil {
			return 0, err
		}
		sum, found = sum+n, true
	}
	if !found {
		return 0, errors.New(r.name + " has no metric " + name)
	}
	return sum, nil
}

// repairs counts how the present processes mended their copies.
func (h *house) repairs() string {
	out := ""
	for _, kind := range []string{"nothing", "range", "snapshot", "patch"} {
		sum := 0.0
		for _, r := range h.all() {
			page, err := r.p.Get("/metrics")
			if err != nil {
				continue
			}
			for line := range strings.Lines(page) {
				f := strings.Fields(line)
				if len(f) == 2 && strings.HasPrefix(line, "weft_bus_repairs_total{") && strings.Contains(line, `kind="`+kind+`"`) {
					if n, err := strconv.ParseFloat(f[1], 64); err == nil {
						sum += n
					}
				}
			}
		}
		out += fmt.Sprintf(" %s %.0f", kind, sum)
	}
	return out
}

// leader is the watcher that leads now, or the first if none says so.
func (h *house) leader() *replica {
	for _, w := range h.watchers {
		if n, err := w.metric("weft_watcher_leader"); err == nil && n == 1 {
			return w
		}
	}
	return h.watchers[0]
}

// atOne says that all copies are at one place of the log.
func (h *house) atOne() error {
	var first string
	for _, r := range h.all() {
		at := ""
		for _, name := range []string{"weft_bus_epoch", "weft_bus_seq", "weft_bus_stale"} {
			n, err := r.metric(name)
			if err != nil {
				return err
			}
			at += fmt.Sprintf(" %s=%.0f", name, n)
		}
		if first == "" {
			first = at
		}
		if at != first || !strings.HasSuffix(at, "stale=0") {
			return fmt.Errorf("%s is at%s, %s at%s", h.all()[0].name, first, r.name, at)
		}
	}
	return nil
}
