package sim

import (
	"time"

	"github.com/weftmesh/weft/bus"
)

// do lets one thing happen, and then everything come to rest.
func (w *world) do(s step) {
	switch s.what {
	case "add":
		w.addPod()
	case "remove":
		w.removePod(s.n, false)
	case "remove-pod-first":
		w.removePod(s.n, true)
	case "allow":
		w.allow[s.n%services] = !w.allow[s.n%services]
		w.server(s.n % services)
	case "protocol":
		w.proto[s.n%services] = (w.proto[s.n%services] + 1) % len(protocols)
		w.server(s.n % services)
	case "cut":
		w.setCut(s.n, true)
	case "heal":
		w.setCut(s.n, false)
	case "slow":
		w.mem.Slow(w.transports()[s.n%len(w.transports())])
	case "stall":
		w.api.Stall(w.watchers[s.n%watchers].it)
	case "resume":
		w.api.Resume(w.watchers[s.n%watchers].it)
	case "lead":
		w.lead(s.n%watchers, s.d)
	case "restart-watcher":
		w.restartWatcher(s.n % watchers)
	case "restart-destination":
		p := w.finders[s.n%fronts]
		w.stop(func(c *client) bool { return c.of == p.name })
		p.stop()
		w.startFinder(p)
	case "restart-policy":
		p := w.judges[s.n%fronts]
		w.stop(func(c *client) bool { return c.of == p.name })
		p.stop()
		w.startJudge(p)
	case "pass":
		w.pass(s.d)
		return
	}
	w.pass(time.Millisecond)
}

// lead gives another watcher the lease. The one before believes to have it for
// a while longer, as a process does that was stopped.
func (w *world) lead(n int, late time.Duration) {
	if n == w.leader {
		return
	}
	lose := w.lose
	w.leader, w.lose = n, w.watchers[n].it.Lead(w.ctx)
	w.wg.Go(func() {
		select {
		case <-time.After(late):
		case <-w.ctx.Done():
		}
		lose()
	})
}

func (w *world) restartWatcher(n int) {
	p := w.watchers[n]
	p.stop()
	p.cut = false
	w.api.Forget(p.it)
	w.startWatcher(p)
	if n == w.leader {
		w.lose = p.it.Lead(w.ctx)
	}
}

// transports are everybody's, in a fixed order.
func (w *world) transports() []bus.Transport {
	var out []bus.Transport
	for _, p := range w.watchers {
		out = append(out, p.tr)
	}
	for _, p := range w.finders {
		out = append(out, p.tr)
	}
	for _, p := range w.judges {
		out = append(out, p.tr)
	}
	return out
}

func (w *world) setCut(n int, cut bool) {
	flags := w.cuts()
	n %= len(flags)
	if *flags[n] == cut {
		return
	}
	*flags[n] = cut
	if cut {
		w.mem.Cut(w.transports()[n])
	} else {
		w.mem.Heal(w.transports()[n])
	}
}

// cuts are the flags of transports.
func (w *world) cuts() []*bool {
	var out []*bool
	for _, p := range w.watchers {
		out = append(out, &p.cut)
	}
	for _, p := range w.finders {
		out = append(out, &p.cut)
	}
	for _, p := range w.judges {
		out = append(out, &p.cut)
	}
	return out
}

// calm ends all faults and waits as long as the slowest repair may take: two
// writers that both believe to lead give way for 32 s, a table that differs
// again is healed after minutes.
func (w *world) calm() {
	for n := range w.cuts() {
		w.setCut(n, false)
	}
	for _, p := range w.watchers {
		w.api.Resume(p.it)
	}
	for range 10 {
		w.pass(4 * time.Second)
		w.server(0) // something for a leader that was ousted to notice
	}
	w.pass(20 * time.Second)
}
