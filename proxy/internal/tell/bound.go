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
	now atomic.Pointer[map[K]V]
	mu  sync.Mutex // of Put
}

// maxBound bounds what one remembers. Keys are made of what peers may make up,
// as status codes are; handles beyond it are made anew each time.
const maxBound = 256

// Get returns the handle of a key, if it is known.
func (b *Bound[K, V]) Get(key K) (v V, ok bool) {
	if m := b.now.Load(); m != nil {
		v, ok = (*m)[key]
	}
	return v, ok
}

// Put remembers a handle, and returns the one that is remembered for the key.
func (b *Bound[K, V]) Put(key K, v V) V {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.now.Load()
	if old == nil {
		b.now.Store(&map[K]V{key: v})
		return v
	}
	if known, ok := (*old)[key]; ok {
		return known
	}
	if len(*old) >= maxBound {
		return v
	}
	next := maps.Clone(*old)
	next[key] = v
	b.now.Store(&next)
	return v
}
