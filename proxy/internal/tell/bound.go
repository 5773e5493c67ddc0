package tell

import (
	"maps"
	"sync"
	"sync/atomic"
)

// A Bound remembers handles by what they are for, so that a request finds its own
// without making labels. The zero value is empty. Getting takes no lock and no
// memory; whoever puts has made sure that the key's strings last.
type Bound[K comparable, V any] struct {
	last atomic.Pointer[bound[K, V]] // that was asked for: mostly it is the next, too
	now  atomic.Pointer[map[K]*bound[K, V]]
	mu   sync.Mutex // of Put
}

type bound[K comparable, V any] struct {
	key K
	v   V
}

// maxBound bounds what one remembers. Keys are made of what peers may make up,
// as status codes are; handles beyond it are made anew each time.
const maxBound = 256

// Get returns the handle of a key, if it is known.
func (b *Bound[K, V]) Get(key K) (v V, ok bool) {
	if last := b.last.Load(); last != nil && last.key == key {
		return last.v, true
	}
	m := b.now.Load()
	if m == nil {
		return v, false
	}
	found, ok := (*m)[key]
	if !ok {
		return v, false
	}
	b.last.Store(found)
	return found.v, true
}

// Put remembers a handle, and returns the one that is remembered for the key.
func (b *Bound[K, V]) Put(key K, v V) V {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := map[K]*bound[K, V]{}
	if old := b.now.Load(); old != nil {
		if known, ok := (*old)[key]; ok {
			return known.v
		}
		if len(*old) >= maxBound {
			return v
		}
		next = maps.Clone(*old)
	}
	next[key] = &bound[K, V]{key, v}
	b.now.Store(&next)
	return v
}
