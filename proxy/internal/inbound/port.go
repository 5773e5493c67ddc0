package inbound

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftmesh/weft/proxy/internal/allow"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// A port's policy can change at any time; current gives it together with a
// channel that is closed when the next one comes.
type port struct {
	number uint16
	state  atomic.Pointer[portState]
	heard  chan struct{} // closed by the first answer
	by     time.Time     // when nobody waits for it any more
	once   sync.Once
	// limiter counts by the limits of the policy; nil if it has none.
	limiter atomic.Pointer[limiter]
	found   atomic.Pointer[found]

	// Guarded by policies.mu.
	holders int
	forever bool
	cancel  context.CancelFunc
	evict   *time.Timer
}

type portState struct {
	policy *allow.Policy
	next   chan struct{}
}

func (p *port) current() (*allow.Policy, <-chan struct{}) {
	s := p.state.Load()
	return s.policy, s.next
}

// await blocks until the port's policy is known or firstAnswer is over.
func (p *port) await(ctx context.Context) {
	if p.hasAnswer() {
		return
	}
	left := time.Until(p.by)
	if left <= 0 {
		return
	}
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-p.heard:
	case <-t.C:
	case <-ctx.Done():
	}
}

func (p *port) hasAnswer() bool {
	select {
	case <-p.heard:
		return true
	default:
		return false
	}
}

func (p *port) answered() { p.once.Do(func() { close(p.heard) }) }

func (p *port) policy() *allow.Policy { return p.state.Load().policy }

func (p *port) set(policy *allow.Policy) {
	switch l := p.limiter.Load(); {
	case policy.Limits == nil:
		p.limiter.Store(nil)
	case l == nil || !l.limits.Equal(policy.Limits): // else go on counting
		p.limiter.Store(newLimiter(policy.Limits))
	}
	if old := p.state.Swap(&portState{policy, make(chan struct{})}); old != nil {
		close(old.next)
	}
}

// found counts what connections to the port carry, by the server that its policy is.
type found struct {
	server allow.Ref
	*tell.Detections
}

// detections are the port's, of the policy of this moment.
func (p *port) detections(m *tell.Metrics) *tell.Detections {
	server := p.policy().Server
	f := p.found.Load()
	if f == nil || f.server != server {
		f = &found{server, m.Detections(tell.InboundDetect, tell.InboundDetectTime, verdictLabels(allow.Verdict{Server: server}, p.number))}
		p.found.Store(f)
	}
	return f.Detections
}
