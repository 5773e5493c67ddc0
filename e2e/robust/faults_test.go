package robust

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fault is one thing that is done to the mesh, and undone.
type fault struct {
	name string
	// target is what it is done to: of two faults at one target the later waits.
	target string
	n      int // which one of them
	at     time.Duration
	lasts  time.Duration
}

func (f fault) String() string {
	return fmt.Sprintf("%s %d, %v long", f.name, f.n, f.lasts.Round(time.Millisecond))
}

// kinds of faults: what they are done to, of how many, and for how long at least
// and at most. A pause of the leader outlasts its lease; that is added.
var faultKinds = []struct {
	name, target string
	of           int
	least, most  time.Duration
}{
	{"kill the leader", "watchers", 1, 500 * time.Millisecond, 4 * time.Second},
	{"kill the standby", "watchers", 1, 500 * time.Millisecond, 4 * time.Second},
	{"end the leader", "watchers", 1, 500 * time.Millisecond, 2 * time.Second},
	{"pause the leader", "watchers", 1, 500 * time.Millisecond, 3500 * time.Millisecond},
	{"kill both watchers", "watchers", 1, time.Second, 6 * time.Second},
	{"API server is down", "api", 1, time.Second, 6 * time.Second},
	{"API server forgets the past", "api", 1, 0, 0},
	{"kill front-end", "front", 2 * fronts, 0, 3 * time.Second},
	{"start front-end alone", "front", 2 * fronts, time.Second, 5 * time.Second},
	{"pause front-end", "front", 2 * fronts, time.Second, 8 * time.Second},
	{"starve front-end", "front", 2 * fronts, 2 * time.Second, 6 * time.Second},
	{"storm of restarts of front-end", "front", 2 * fronts, time.Second, 3 * time.Second},
	{"never read from front-end", "front", 2 * fronts, 0, 0},
	{"kill NATS server", "nats", servers, 500 * time.Millisecond, 5 * time.Second},
	{"kill every NATS server", "nats", 1, 500 * time.Millisecond, 3 * time.Second},
	{"pause NATS server", "nats", servers, time.Second, 6 * time.Second},
	{"split off NATS server", "nats", servers, time.Second, 6 * time.Second},
	{"silence between NATS servers", "nats", servers, time.Second, 6 * time.Second},
	{"cut the wires of process", "wire", watchers + 2*fronts, 500 * time.Millisecond, 5 * time.Second},
	{"stall the wires of process", "wire", watchers + 2*fronts, time.Second, 8 * time.Second},
	{"slow wires of process", "wire", watchers + 2*fronts, time.Second, 6 * time.Second},
}

// calmAfter is how long a new leader may lead before the next fault of watchers.
const calmAfter = 4 * time.Second

// tail is how long after a run the last fault may still last.
const tail = 4 * time.Second

// invent makes up the faults of a run, in order. Every kind has its turn before
// one comes again.
func invent(seed uint64, lasts, lease, gap time.Duration) []fault {
	rng := rand.New(rand.NewPCG(seed, 3))
	busy := map[string]time.Duration{}
	var out []fault
	var left []int
	for now := time.Duration(0); ; now += time.Duration(gap.Milliseconds()/4+rng.Int64N(gap.Milliseconds()*3/2)) * time.Millisecond {
		if len(left) == 0 {
			left = rng.Perm(len(faultKinds))
		}
		k := faultKinds[left[0]]
		left = left[1:]
		f := fault{name: k.name, n: rng.IntN(k.of), lasts: k.least}
		f.target = k.target
		if k.of > 1 && k.target != "nats" {
			f.target = fmt.Sprint(k.target, f.n)
		}
		if k.most > k.least {
			f.lasts += time.Duration(rng.Int64N(int64(k.most - k.least)))
		}
		if f.name == "pause the leader" {
			f.lasts += lease
		}
		f.at = max(now, busy[f.target])
		if now >= lasts {
			break
		}
		if f.at >= lasts || f.at+f.lasts > lasts+tail {
			continue
		}
		busy[f.target] = f.at + f.lasts + 300*time.Millisecond
		if f.target == "watchers" { // else hardly ever would anybody lead
			busy[f.target] += lease + calmAfter
		}
		out = append(out, f)
	}
	slices.SortStableFunc(out, func(a, b fault) int { return int(a.at - b.at) })
	return out
}

// begin does it; what it returns undoes it.
func (h *house) begin(f fault) (undo func()) {
	all := h.all()
	switch f.name {
	case "kill the leader", "end the leader", "kill the standby":
		w := h.leader()
		if f.name == "kill the standby" {
			w = h.watchers[1-slices.Index(h.watchers, w)]
		}
		if f.name == "end the leader" {
			w.p.Signal(syscall.SIGTERM) // gives up its lease
			return func() { w.kill(); w.start() }
		}
		w.kill()
		return w.start
	case "pause the leader":
		w := h.leader()
		w.pause()
		return w.resume
	case "kill both watchers":
		for _, w := range h.watchers {
			w.kill()
		}
		return func() {
			for _, w := range h.watchers {
				w.start()
			}
		}
	case "API server is down":
		h.api.setDown(true)
		return func() { h.api.setDown(false) }
	case "API server forgets the past":
		h.api.compact()
	case "kill front-end":
		h.fronts[f.n].kill()
		return h.fronts[f.n].start
	case "start front-end alone": // it knows nothing, and may not say that there is nothing
		h.fronts[f.n].kill()
		h.fronts[f.n].wire(cut)
		h.fronts[f.n].start()
		return func() { h.fronts[f.n].wire(passes) }
	case "pause front-end":
		h.fronts[f.n].pause()
		return h.fronts[f.n].resume
	case "starve front-end":
		return h.fronts[f.n].starve()
	case "storm of restarts of front-end":
		for range 3 {
			h.fronts[f.n].kill()
			h.fronts[f.n].start()
		}
		h.fronts[f.n].kill()
		return h.fronts[f.n].start
	case "never read from front-end":
		h.deafen(h.fronts[f.n])
	case "kill NATS server":
		h.bus.nodes[f.n].kill()
		return h.bus.nodes[f.n].start
	case "kill every NATS server":
		for _, n := range h.bus.nodes {
			n.kill()
		}
		return func() {
			for _, n := range h.bus.nodes {
				n.start()
			}
		}
	case "pause NATS server":
		h.bus.nodes[f.n].pause()
		return h.bus.nodes[f.n].resume
	case "split off NATS server":
		h.bus.split(f.n, cut)
		return func() { h.bus.split(f.n, passes) }
	case "silence between NATS servers":
		h.bus.split(f.n, stalls)
		return func() { h.bus.split(f.n, passes) }
	case "cut the wires of process":
		all[f.n].wire(cut)
		return func() { all[f.n].wire(passes) }
	case "stall the wires of process":
		all[f.n].wire(stalls)
		return func() { all[f.n].wire(passes) }
	case "slow wires of process":
		all[f.n].wire(slow)
		return func() { all[f.n].wire(passes) }
	default:
		h.t.Fatalf("no such fault: %v", f)
	}
	return func() {}
}

// starve gives a process a hundredth of a processor: it is stopped nearly all
// the time.
func (r *replica) starve() (feed func()) {
	p, stop, done := r.p, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			p.Signal(syscall.SIGSTOP)
			select {
			case <-stop:
			case <-time.After(495 * time.Millisecond):
			}
			p.Signal(syscall.SIGCONT)
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() { close(stop); <-done }
}

// TestInvent: the same seed, the same faults; of those at one target one at a
// time; and in a minute every kind.
func TestInvent(t *testing.T) {
	for seed := range uint64(50) {
		faults := invent(seed, time.Minute, 5*time.Second, time.Second)
		if !slices.Equal(faults, invent(seed, time.Minute, 5*time.Second, time.Second)) {
			t.Fatalf("seed %d makes up something else each time", seed)
		}
		free := map[string]time.Duration{}
		seen := map[string]bool{}
		for _, f := range faults {
			if f.at < free[f.target] {
				t.Errorf("seed %d: %v at %v, while another is at %s until %v", seed, f, f.at, f.target, free[f.target])
			}
			free[f.target] = f.at + f.lasts
			seen[f.name] = true
		}
		var missing []string
		for _, k := range faultKinds {
			if !seen[k.name] {
				missing = append(missing, k.name)
			}
		}
		if len(missing) > len(faultKinds)/3 {
			t.Errorf("seed %d never does: %s", seed, strings.Join(missing, ", "))
		}
	}
}
