package bus

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// patienceFor is how long a peer that was asked may be silent: long, for under
	// load it may be slow, and asking again would only add to the load (BUS.md
	// section 7).
	patienceFor   = 2 * time.Second
	patienceSteps = 20
)

// patience ends a context when a peer is silent too long. It is counted in
// steps, each begun when the one before was noticed, and not while what came is
// being read: a process that gets a hundredth of a processor, or was stopped,
// doesn't take its own slowness for the peer's.
type patience struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer

	mu    sync.Mutex
	steps int
	busy  int
	ended bool
}

// withPatience gives a context that ends when patience does, or with stop.
func withPatience(parent context.Context) (ctx context.Context, p *patience) {
	ctx, cancel := context.WithCancelCause(parent)
	p = &patience{cancel: cancel}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(patienceFor/patienceSteps, p.step)
	return ctx, p
}

func (p *patience) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy == 0 {
		p.steps++
	}
	switch {
	case p.ended:
	case p.steps >= patienceSteps:
		p.cancel(fmt.Errorf("no answer in %v", patienceFor))
	default:
		p.timer.Reset(patienceFor / patienceSteps)
	}
}

// came says that something arrived and is read now, until done is called.
func (p *patience) came() (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps = 0
	p.busy++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.busy--
	}
}

func (p *patience) stop() {
	p.mu.Lock()
	p.ended = true
	p.timer.Stop()
	p.mu.Unlock()
	p.cancel(nil)
}
