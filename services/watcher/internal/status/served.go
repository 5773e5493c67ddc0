package status

import (
	"sync"
	"time"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

const (
	// server is who serves what the statuses are about.
	server = "policy"
	// silent is how long a process may say nothing before it counts as gone: three
	// of its presences.
	silent = 15 * time.Second
	// maxReplicas bounds what presences can make us remember.
	maxReplicas = 1000
)

// point is a place in the log.
type point struct{ epoch, seq uint64 }

func (p point) before(o point) bool {
	return p.epoch < o.epoch || p.epoch == o.epoch && p.seq < o.seq
}

// replicas is how far each process that serves policy has read the log.
type replicas struct {
	mu    sync.Mutex
	known map[string]replica
}

type replica struct {
	at    point
	heard time.Time
}

// hear takes in a presence.
func (r *replicas) hear(p *busv1.Presence, now time.Time) {
	if p.GetService() != server {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.GetLeaving() {
		delete(r.known, p.GetInstance())
		return
	}
	if r.known == nil {
		r.known = make(map[string]replica)
	}
	if _, old := r.known[p.GetInstance()]; old || len(r.known) < maxReplicas {
		r.known[p.GetInstance()] = replica{point{p.GetEpoch(), p.GetSeq()}, now}
	}
}

// reached is how many replicas there are, and how far all of them have read.
func (r *replicas) reached(now time.Time) (n int, all point) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for instance, of := range r.known {
		if now.Sub(of.heard) > silent {
			delete(r.known, instance)
			continue
		}
		if n == 0 || of.at.before(all) {
			all = of.at
		}
		n++
	}
	return n, all
}

// generations is where in the log each object's newest generation was first seen.
// Replicas are always a little behind the newest cut, but not behind that.
type generations map[shape.ID]generation

type generation struct {
	n    int64
	from point
}

// served is how many replicas serve the generation of an object that was judged
// at a point of the log; 0 while some don't.
func (g generations) served(id shape.ID, n int64, judged point, replicas int, all point) int {
	if g[id].n != n || g[id].from == (point{}) {
		g[id] = generation{n, judged}
	}
	if all.before(g[id].from) {
		return 0
	}
	return replicas
}

// forget drops what is no more wanted.
func (g generations) forget(wanted map[shape.ID]bool) {
	for id := range g {
		if !wanted[id] {
			delete(g, id)
		}
	}
}
