package scale_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// TestStart: how long a front-end takes to be ready from nothing, what it pulls
// for it, and what it holds at rest; then ten at once.
func TestStart(t *testing.T) {
	s := bench(t, "start")
	m := start(t, *pods)
	wire := m.tapped()
	var keepers []*proc.Process
	for _, name := range []string{"destination", "policy"} {
		before, began := wire.answers.Load(), time.Now()
		p := m.launch(name, "-listen", proc.FreePort(t))
		p.Ready()
		s.took(name+": start to ready", time.Since(began), 2*time.Second)
		s.took(name+": processor time until ready", cpu(t, p), 0)
		wire.flush(t)
		s.atFullSize(name+": snapshot, compressed", float64(wire.answers.Load()-before)/1e6, "MB", 10)
		keepers = append(keepers, p)
	}
	for _, p := range keepers {
		heap := atRest(t, p)
		s.atFullSize(p.Name+": live heap, able to serve snapshots", heap, "MB", 180)
		s.say(p.Name+": the same, as wanted", heap, "MB", 120)
		s.say(p.Name+": RSS", rss(t, p), "MB", 260)
	}
	for _, p := range keepers {
		p.Stop()
	}

	const many = 10
	began := time.Now()
	all := make([]*proc.Process, many)
	for i := range all {
		all[i] = m.launch("destination", "-listen", proc.FreePort(t))
	}
	var ready sync.WaitGroup
	for _, p := range all {
		ready.Go(p.Ready)
	}
	ready.Wait()
	s.took(fmt.Sprintf("%d destinations at once: all ready", many), time.Since(began), 8*time.Second)
	var spent time.Duration
	for _, p := range all {
		spent += cpu(t, p)
	}
	s.took("processor time of each", spent/many, 0)
}

// TestStartFromAPeer: the writer is gone, and a replica hands out the state.
func TestStartFromAPeer(t *testing.T) {
	s := bench(t, "peer")
	m := start(t, *pods)
	first, _ := m.destination()
	heap := atRest(t, first)
	m.gone()
	began := time.Now()
	second := m.launch("destination", "-listen", proc.FreePort(t))
	second.Ready()
	s.took("destination: start to ready from a peer, the writer gone", time.Since(began), 2*time.Second)
	s.atFullSize("live heap of one that could serve", heap, "MB", 180)
}
