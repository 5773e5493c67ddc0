package outbound

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weftmesh/weft/proxy/internal/explicit"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/resolve"
)

// target is what is known of where a client wants to go, as a stack that is
// rebuilt when the control plane says something new.
type target struct {
	to     resolve.Target
	cancel context.CancelFunc
	first  chan struct{} // closed when there is a stack or err
	err    error
	stack  atomic.Pointer[stack]
	done   chan struct{} // closed when the watch has ended
}

// maxTargets bounds the destinations a proxy has open. Linkerd has no bound; a
// pod that talks to more at once than this is better told than swapped out.
const maxTargets = 10000

// target returns the target, being discovered if nobody has asked lately.
func (o *Outbound) target(to resolve.Target) (*target, func(), error) {
	key := to.String()
	return o.targets.take(key, func() *target { return o.begin(to, key) })
}

// hold is target for a request: what it returns is released once, by whoever holds
// it. key is the target's text.
func (o *Outbound) hold(to resolve.Target, key string) (*target, *slot[*target], error) {
	at := o.targets.find(key)
	if at == nil {
		var err error
		if at, err = o.targets.hold(key, func() *target { return o.begin(to, key) }); err != nil {
			return nil, nil, err
		}
	}
	return at.value, at, nil
}

func (o *Outbound) begin(to resolve.Target, key string) *target {
	ctx, cancel := context.WithCancel(o.life)
	t := &target{to: to, cancel: cancel, first: make(chan struct{}), done: make(chan struct{})}
	go o.discover(ctx, key, t)
	return t
}

// names remembers what clients' words for targets mean.
type names struct {
	mu    sync.RWMutex
	known map[string]name
}

type name struct {
	to        resolve.Target
	key, word string
}

// maxNames bounds them; when there are more, all are forgotten.
const maxNames = 1000

// asked is the target that a request of a client names. What is returned beside it is
// to be released.
func (o *Outbound) asked(c *client, r *message.Request) (*target, *slot[*target], error) {
	if r.Method == "CONNECT" || r.Version != message.HTTP2 && (!r.Absolute || r.Scheme != "http") {
		to, err := explicit.Request(r)
		if err != nil {
			return nil, nil, err
		}
		return o.hold(to, to.String())
	}
	keeps := c.explicit && r.Version != message.HTTP2
	if keeps && c.last != nil && c.word == r.Authority && o.targets.again(c.last) {
		return c.last.value, c.last, nil
	}
	n, err := o.meant(r)
	if err != nil {
		return nil, nil, err
	}
	t, at, err := o.hold(n.to, n.key)
	if keeps && err == nil {
		c.last, c.word = at, n.word
	}
	return t, at, err
}

// meant is what a request's authority means.
func (o *Outbound) meant(r *message.Request) (name, error) {
	o.names.mu.RLock()
	n, ok := o.names.known[r.Authority]
	o.names.mu.RUnlock()
	if ok {
		return n, nil
	}
	to, err := explicit.Request(r)
	if err != nil {
		return name{}, err
	}
	n = name{to, to.String(), strings.Clone(r.Authority)}
	o.names.mu.Lock()
	if o.names.known == nil || len(o.names.known) >= maxNames {
		o.names.known = make(map[string]name)
	}
	o.names.known[n.word] = n
	o.names.mu.Unlock()
	return n, nil
}

func (o *Outbound) discover(ctx context.Context, key string, t *target) {
	defer close(t.done)
	err := o.resolver.Target(ctx, t.to, func(p *resolve.Policy) {
		old := t.stack.Swap(o.build(t.to, p))
		if old == nil {
			close(t.first)
			return
		}
		old.release()
	})
	if s := t.stack.Load(); s != nil {
		// The last stack stays as long as anyone may still ask for it.
		<-ctx.Done()
		s.release()
		return
	}
	t.err = err
	close(t.first)
	// An error is not remembered: the next connection asks again.
	o.targets.drop(key, func(v *target) bool { return v == t })
}

// now is the stack to use, waiting for the first.
func (t *target) now(ctx context.Context) (*stack, error) {
	select {
	case <-t.first:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s := t.stack.Load(); s != nil {
		return s, nil
	}
	return nil, t.err
}
