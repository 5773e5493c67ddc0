// Package spare keeps memory for its next use.
package spare

import (
	"sync"
	"sync/atomic"
)

// A Pool is a sync.Pool with one thing at hand: what a request has given back the
// next one takes, mostly, and the way through a sync.Pool is long for that. What is
// at hand stays when the collector empties the pool. Any goroutine may use it. A Pool
// must not be copied.
type Pool[T any] struct {
	// Make makes what there is none of; nil makes the zero value.
	Make func() *T

	hand atomic.Pointer[T]
	rest sync.Pool
}

// Get returns what was given back, or makes it.
func (p *Pool[T]) Get() *T {
	if t := p.hand.Swap(nil); t != nil {
		return t
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
	if !p.hand.CompareAndSwap(nil, t) {
		p.rest.Put(t)
	}
}
