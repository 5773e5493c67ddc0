package bus_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// TestAnyFaults runs the log under seeded random faults: loss, repetition,
// reordering, partitions, slow connections, damaged copies, fail-overs and old
// leaders that go on writing. What must hold, whatever happens:
//
//	consistent: after each cut a consumer holds a state that a writer held there
//	            (but for damaged copies)
//	forward:    positions never fall
//	agree:      once faults end, everybody holds the truth
//
// WEFT_SEEDS is how many seeds are tried, WEFT_SEED the first.
func TestAnyFaults(t *testing.T) {
	first, n := envInt("WEFT_SEED", 1), envInt("WEFT_SEEDS", 60)
	for seed := first; seed < first+n; seed++ {
		synctest.Test(t, func(t *testing.T) {
			s := &sim{
				t: t, seed: seed, rng: rand.New(rand.NewPCG(uint64(seed), 7)), mem: bustest.Memory(),
				truth: rowMap{}, states: map[place]rowMap{},
			}
			s.run()
		})
		if t.Failed() {
			t.Fatalf("run again with WEFT_SEED=%d WEFT_SEEDS=1", seed)
		}
	}
}

func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

type (
	rowMap map[string]string
	place  struct{ epoch, seq uint64 }
)

type sim struct {
	t    *testing.T
	seed int
	rng  *rand.Rand
	mem  *bustest.Mem
	ctx  context.Context //nolint:containedctx // a test's world
	wg   sync.WaitGroup

	truth  rowMap
	states map[place]rowMap
	procs  []*simProcess
	leader *simProcess
	faulty atomic.Bool
}

type simProcess struct {
	name string
	tr   bus.Transport
	r    *bus.Reader
	w    *bus.Writer
	led  bool
	cut  bool
	// narrow: it keeps the table of nodes alone, and never leads.
	narrow bool

	mu   sync.Mutex
	view rowMap
	seen []seen
}

type seen struct {
	at   place
	view rowMap
}

func (s *sim) run() {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.ctx = ctx
	defer func() { cancel(); s.wg.Wait() }()
	// Dice for each link, so that fates don't depend on which of two goroutines
	// sends first. Called with the bus locked.
	links := map[string]*rand.Rand{}
	s.mem.Decide(func(from, to bus.Transport, _ bus.Message) bustest.Fate {
		if !s.faulty.Load() {
			return bustest.Pass
		}
		link := from.Peer() + to.Peer()
		if links[link] == nil {
			h := fnv.New64a()
			_, _ = h.Write([]byte(link))
			links[link] = rand.New(rand.NewPCG(uint64(s.seed), h.Sum64()))
		}
		switch x := links[link].IntN(100); {
		case x < 6:
			return bustest.Lost
		case x < 10:
			return bustest.Repeated
		case x < 16:
			return bustest.Held
		}
		return bustest.Pass
	})
	for range 5 {
		s.start(false)
	}
	s.start(true)
	s.lead(s.procs[0])
	s.faulty.Store(true)
	for range 150 {
		s.step()
		synctest.Wait()
	}
	s.faulty.Store(false)
	for _, p := range s.procs {
		if p.cut {
			s.mem.Heal(p.tr)
		}
	}
	for range 40 { // a watcher looks at its lease and at Leading
		pass(time.Second)
		s.change(s.leader)
	}
	pass(10 * time.Second)
	for _, p := range s.procs {
		s.check(p)
	}
}

func (s *sim) start(narrow bool) {
	p := &simProcess{name: fmt.Sprint("p", len(s.procs)), tr: s.mem.Join(""), view: rowMap{}, narrow: narrow}
	cfg := bus.ReaderConfig{}
	if narrow {
		cfg.Tables = []busv1.Table{busv1.Table_TABLE_NODES}
	}
	p.r = bus.NewReader(p.tr, cfg)
	skew := time.Duration(s.rng.IntN(60_000)-30_000) * time.Millisecond
	p.w = bus.NewWriter(p.tr, p.r, bus.WriterConfig{Now: func() time.Time { return time.Now().Add(skew) }})
	s.procs = append(s.procs, p)
	s.wg.Go(func() { _ = p.r.Run(s.ctx) })
	s.wg.Go(func() { _ = p.w.Run(s.ctx) })
	s.wg.Go(func() { p.consume(s.ctx) })
}

func (p *simProcess) consume(ctx context.Context) {
	for cut, err := range p.r.Read(ctx) {
		if err != nil {
			return
		}
		p.mu.Lock()
		for _, c := range cut.Changes {
			if c.Value == nil {
				delete(p.view, c.Key)
			} else {
				p.view[c.Key] = string(c.Value)
			}
		}
		p.seen = append(p.seen, seen{place{cut.Epoch, cut.Seq}, maps.Clone(p.view)})
		p.mu.Unlock()
	}
}

// step does one thing at random.
func (s *sim) step() {
	p := s.procs[s.rng.IntN(len(s.procs))]
	switch x := s.rng.IntN(100); {
	case x < 45:
		s.change(s.leader)
	case x < 60:
		pass(time.Duration(s.rng.IntN(700)) * time.Millisecond)
	case x < 66:
		pass(time.Duration(s.rng.IntN(5000)) * time.Millisecond)
	case x < 71: // somebody else wins the lease
		if p != s.leader && !p.cut && !p.narrow {
			s.lead(p)
		}
	case x < 80: // an old leader doesn't know
		if p.led && p != s.leader {
			s.change(p)
		}
	case x < 87:
		if p.cut {
			s.mem.Heal(p.tr)
		} else if p != s.leader {
			s.mem.Cut(p.tr)
		}
		p.cut = !p.cut && p != s.leader
	case x < 92:
		s.mem.Slow(p.tr)
	case x < 96:
		if s.damages() && p != s.leader {
			k := key(s.rng.IntN(20))
			bus.Forget(p.r, tableOf(k), k)
		}
	default:
		if len(s.procs) < 9 {
			s.start(s.rng.IntN(4) == 0)
		}
	}
}

// damages: a copy that missed something may pass it on before the next beacon,
// so with damage in play consumers are only right in the end. Every other seed.
func (s *sim) damages() bool { return s.seed%2 == 0 }

func key(i int) string { return fmt.Sprint("k", i) }

// tableOf spreads the keys over two tables.
func tableOf(key string) busv1.Table {
	if key[len(key)-1]%2 == 0 {
		return busv1.Table_TABLE_NODES
	}
	return busv1.Table_TABLE_NAMESPACES
}

// of is what a process must hold of a state.
func (p *simProcess) of(state rowMap) rowMap {
	out := maps.Clone(state)
	maps.DeleteFunc(out, func(k, _ string) bool { return p.narrow && tableOf(k) != busv1.Table_TABLE_NODES })
	return out
}

// change makes a writer append; only the true leader's changes are the truth.
func (s *sim) change(p *simProcess) {
	var changes []bus.Change
	for range 1 + s.rng.IntN(4) {
		k := key(s.rng.IntN(20))
		c := bus.Change{Table: tableOf(k), Key: k}
		if s.rng.IntN(3) > 0 {
			c.Value = []byte(strconv.Itoa(s.rng.IntN(1000)))
			if s.rng.IntN(8) == 0 { // several in one cut make it one of parts
				c.Value = bytes.Repeat(c.Value, 50_000)
			}
		}
		changes = append(changes, c)
	}
	if _, err := p.w.Append(s.ctx, changes, time.Time{}); err != nil {
		if p == s.leader { // it holds the lease, so it leads again
			s.lead(p)
		}
		return
	}
	if p == s.leader {
		for _, c := range changes {
			if c.Value == nil {
				delete(s.truth, c.Key)
			} else {
				s.truth[c.Key] = string(c.Value)
			}
		}
	}
	s.record(p)
}

func (s *sim) lead(p *simProcess) {
	var truth []bus.Change
	for k, v := range s.truth {
		truth = append(truth, bus.Change{Table: tableOf(k), Key: k, Value: []byte(v)})
	}
	if err := p.w.Lead(s.ctx, truth); err != nil {
		s.t.Errorf("leading: %v", err)
	}
	s.leader, p.led = p, true
	s.record(p)
}

// record notes what the writer holds where it stands.
func (s *sim) record(p *simProcess) {
	st := p.r.Status()
	s.states[place{st.Epoch, st.Seq}] = held(p.r)
}

func held(r *bus.Reader) rowMap {
	out := rowMap{}
	for _, c := range r.All() {
		out[c.Key] = string(c.Value)
	}
	return out
}

func (s *sim) check(p *simProcess) {
	p.mu.Lock()
	defer p.mu.Unlock()
	truth := p.of(s.truth)
	if got := held(p.r); !maps.Equal(got, truth) {
		s.t.Errorf("seed %d: %s holds %v at %+v, truth is %v", s.seed, p.name, short(got), p.r.Status(), short(truth))
	}
	if !maps.Equal(p.view, truth) {
		s.t.Errorf("seed %d: consumer of %s was told %v, truth is %v", s.seed, p.name, short(p.view), short(truth))
	}
	var last place
	for _, v := range p.seen {
		if v.at.epoch < last.epoch || v.at.epoch == last.epoch && v.at.seq < last.seq {
			s.t.Errorf("seed %d: %s went back from %v to %v", s.seed, p.name, last, v.at)
		}
		last = v.at
		if s.damages() {
			continue
		}
		if want, ok := s.states[v.at]; !ok {
			s.t.Errorf("seed %d: %s was at %v, where no writer was", s.seed, p.name, v.at)
		} else if want = p.of(want); !maps.Equal(v.view, want) {
			s.t.Errorf("seed %d: consumer of %s held %v at %v, the writer held %v", s.seed, p.name, short(v.view), v.at, short(want))
		}
	}
}

// short is rows fit to print.
func short(rows rowMap) rowMap {
	out := rowMap{}
	for k, v := range rows {
		out[k] = v[:min(len(v), 6)]
	}
	return out
}
