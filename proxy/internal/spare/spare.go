// Package spare keeps memory for its next use.
package spare

import (
	"sync"
	"sync/atomic"
)

// A Pool is a sync.Pool with something at hand: what a request has given back the
// next one takes, mostly, and the way through a sync.Pool is long for that. What is
// at hand stays when the collector empties the pool. Any goroutine may use it. A Pool
// must not be copied.
type Pool[T any] struct {
	// Make makes what there is none of; nil makes the zero value.
	Make func() *T
	// Small things may stay: several are kept at hand, for on a busy processor many
	// requests begin before the first of them ends. Of others one is.
	Small bool

	hand [hands]atomic.Pointer[T]
	rest sync.Pool
}

// hands is how many small things are at hand: a cache line of them.
const hands = 8

func (p *Pool[T]) few() int {
	if p.Small {
		return hands
	}
	return 1
}

// Get returns what was given back, or makes it.
func (p *Pool[T]) Get() *T {
	for i := range p.few() {
		// To look first is cheap, to take is not.
		if p.hand[i].Load() != nil {
			if t := p.hand[i].Swap(nil); t != nil {
				return t
			}
		}
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
	for i := range p.few() {
		if p.hand[i].Load() == nil && p.hand[i].CompareAndSwap(nil, t) {
			return
		}
	}
	p.rest.Put(t)
}
