// Package tap shows an operator the requests that pass (spec/proxy.md §13): who
// asks, for what, and how it ends. Its heart is the Registry of the taps that are
// open. While there are none, a request costs one atomic load; nobody may call
// Begin before Active has said yes.
package tap

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/tap"
)

const (
	// buffer is how many events may wait for the reader of one tap; further ones
	// are dropped (spec/proxy.md §13).
	buffer = 400
	// maxTaps bounds the taps that are open at once.
	maxTaps = 100
)

// Registry knows the open taps. The zero value is not usable; see New.
type Registry struct {
	active atomic.Int32
	taps   atomic.Pointer[[]*tap] // never changed once stored
	mu     sync.Mutex             // of writers of taps
	opened uint32                 // taps so far; guarded by mu
	now    func() time.Time
}

// New returns a registry without taps.
func New() *Registry {
	r := &Registry{now: time.Now}
	r.taps.Store(new([]*tap))
	return r
}

// Active reports whether anybody taps. A nil registry has no taps.
func (r *Registry) Active() bool { return r != nil && r.active.Load() > 0 }

// tap is one open call of Observe.
type tap struct {
	base    uint32 // of the numbers of its requests
	match   match
	headers bool
	events  chan *pb.TapEvent
	done    chan struct{} // closed when the limit is reached and nothing is in flight

	mu     sync.Mutex
	limit  uint32 // of requests
	taken  uint32 // those sampled
	flying int
}

func (r *Registry) open(m match, headers bool, limit uint32) (*tap, bool) {
	t := &tap{match: m, headers: headers, limit: limit, events: make(chan *pb.TapEvent, buffer), done: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := *r.taps.Load()
	if len(all) >= maxTaps {
		return nil, false
	}
	t.base = r.opened
	r.opened++
	next := append(slices.Clone(all), t)
	r.taps.Store(&next)
	r.active.Store(int32(len(next)))
	return t, true
}

func (r *Registry) close(t *tap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(*r.taps.Load()), func(o *tap) bool { return o == t })
	r.taps.Store(&next)
	r.active.Store(int32(len(next)))
}

// sample takes one of the requests that the tap still wants, and numbers it.
func (t *tap) sample() (n uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken >= t.limit {
		return 0, false
	}
	t.taken++
	t.flying++
	return uint64(t.taken - 1), true
}

// landed ends a sampled request.
func (t *tap) landed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.flying--; t.flying == 0 && t.taken >= t.limit {
		close(t.done)
	}
}

// send drops the event if nobody reads: traffic does not wait for a watcher.
func (t *tap) send(e *pb.TapEvent) bool {
	select {
	case t.events <- e:
		return true
	default:
		return false
	}
}
