package outbound

import (
	"errors"
	"sync"
	"time"
)

// shelf keeps what is made per key while it is used, and for idle after that. It
// holds at most max things: when it is full, the one that has been idle longest
// makes room, and if all are in use, nothing more is taken.
type shelf[V any] struct {
	idle  time.Duration
	max   int
	close func(V)

	mu    sync.Mutex
	slots map[string]*slot[V]
}

type slot[V any] struct {
	key   string
	value V
	users int
	since time.Time   // when users became 0
	timer *time.Timer // runs on while the slot is used and left: a request sets none
	gone  bool        // from the shelf
}

// errFull is answered 503.
var errFull = errors.New("too many destinations are in use")

func newShelf[V any](idle time.Duration, most int, closing func(V)) *shelf[V] {
	return &shelf[V]{idle: idle, max: most, close: closing, slots: map[string]*slot[V]{}}
}

// take returns the value of the key, made if it is not there. release must be
// called once.
func (s *shelf[V]) take(key string, open func() V) (v V, release func(), err error) {
	at, err := s.hold(key, open)
	if err != nil {
		return v, nil, err
	}
	var once sync.Once
	return at.value, func() { once.Do(func() { s.release(at) }) }, nil
}

// hold is take for those who release a slot once by themselves.
func (s *shelf[V]) hold(key string, open func() V) (*slot[V], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.slots[key]
	if at == nil {
		if len(s.slots) >= s.max && !s.room() {
			return nil, errFull
		}
		at = &slot[V]{key: key, value: open()}
		s.slots[key] = at
	}
	at.users++
	return at, nil
}

// find holds what is there; nil is nothing.
func (s *shelf[V]) find(key string) *slot[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.slots[key]
	if at != nil {
		at.users++
	}
	return at
}

// again holds what was held before, and reports whether it is still there.
func (s *shelf[V]) again(at *slot[V]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.gone {
		return false
	}
	at.users++
	return true
}

func (s *shelf[V]) release(at *slot[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.users--; at.users > 0 {
		return
	}
	if at.gone { // while in use
		s.close(at.value)
		return
	}
	at.since = time.Now()
	if at.timer == nil {
		at.timer = time.AfterFunc(s.idle, func() { s.old(at) })
	}
}

// old closes what has been idle for long enough, or looks again when that may be.
func (s *shelf[V]) old(at *slot[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.gone || at.timer == nil {
		return
	}
	if at.users > 0 {
		at.timer = nil // whoever leaves last sets another
		return
	}
	if left := s.idle - time.Since(at.since); left > 0 {
		at.timer.Reset(left)
		return
	}
	at.gone = true
	delete(s.slots, at.key)
	s.close(at.value)
}

// drop forgets the key, so that the next to ask starts anew; who uses it now goes
// on. It does nothing if the key holds something else by now.
func (s *shelf[V]) drop(key string, same func(V) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.slots[key]; at != nil && same(at.value) {
		s.forget(at)
	}
}

// empty forgets everything; what is in use is closed when it is released.
func (s *shelf[V]) empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.slots {
		s.forget(at)
	}
}

// forget is called with the lock held.
func (s *shelf[V]) forget(at *slot[V]) {
	at.gone = true
	delete(s.slots, at.key)
	if at.timer != nil {
		at.timer.Stop()
		at.timer = nil
	}
	if at.users == 0 {
		s.close(at.value)
	}
}

// room drops the longest idle; it is called with the lock held.
func (s *shelf[V]) room() bool {
	var found *slot[V]
	for _, at := range s.slots {
		if at.users == 0 && (found == nil || at.since.Before(found.since)) {
			found = at
		}
	}
	if found == nil {
		return false
	}
	s.forget(found)
	return true
}

func (s *shelf[V]) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.slots)
}
