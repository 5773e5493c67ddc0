// Package spare keeps memory for its next use.
package spare

import "sync"

// A Pool is a sync.Pool with something at hand: what a request has given back the
// next one takes, mostly, and the way through a sync.Pool is long for that. What is
// at hand stays when the collector empties the pool. Any goroutine may use it, and
// waits for none. A Pool must not be copied.
type Pool[T any] struct {
	// Make makes what there is none of; nil makes the zero value.
	Make func() *T
	// Small things may stay: many are kept at hand, for on a busy processor many
	// requests begin before the first of them ends. Of others one is.
	Small bool

	mu   sync.Mutex // of what is at hand. Who finds it locked goes to the rest
	n    int
	hand [hands]*T
	rest sync.Pool
}

// hands is how many small things are at hand: as many as requests wait together for
// their way out (wire's letters).
const hands = 64

// Get returns what was given back, or makes it.
func (p *Pool[T]) Get() *T {
	if p.mu.TryLock() {
		if p.n > 0 {
			p.n--
			t := p.hand[p.n]
			p.hand[p.n] = nil
			p.mu.Unlock()
			return t
		}
		p.mu.Unlock()
	}
	return p.more()
}

func (p *Pool[T]) more() *T {
	if t, ok := p.rest.Get().(*T); ok {
		return t
	}
	if p.Make != nil {
		return p.Make()
	}
	return new(T)
}

// Put gives t, which is not nil, back. Nobody may use it any more.
func (p *Pool[T]) Put(t *T) {
	if p.mu.TryLock() {
		if p.n == 0 || p.Small && p.n < hands {
			p.hand[p.n] = t
			p.n++
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
	p.rest.Put(t)
}
