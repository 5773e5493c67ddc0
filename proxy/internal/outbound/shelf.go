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
	value V
	users int
	since time.Time // when users became 0
	timer *time.Timer
}

// errFull is answered 503.
var errFull = errors.New("too many destinations are in use")

func newShelf[V any](idle time.Duration, most int, closing func(V)) *shelf[V] {
	return &shelf[V]{idle: idle, max: most, close: closing, slots: map[string]*slot[V]{}}
}

// take returns the value of the key, made if it is not there. release must be
// called once.
func (s *shelf[V]) take(key string, open func() V) (v V, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.slots[key]
	if at == nil {
		if len(s.slots) >= s.max && !s.room() {
			return v, nil, errFull
		}
		at = &slot[V]{value: open()}
		s.slots[key] = at
	}
	at.users++
	if at.timer != nil {
		at.timer.Stop()
		at.timer = nil
	}
	var once sync.Once
	return at.value, func() { once.Do(func() { s.release(key, at) }) }, nil
}

func (s *shelf[V]) release(key string, at *slot[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.users--; at.users > 0 {
		return
	}
	if s.slots[key] != at { // dropped while in use
		s.close(at.value)
		return
	}
	at.since = time.Now()
	at.timer = time.AfterFunc(s.idle, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.slots[key] == at && at.users == 0 && at.timer != nil {
			delete(s.slots, key)
			s.close(at.value)
		}
	})
}

// drop forgets the key, so that the next to ask starts anew; who uses it now goes
// on. It does nothing if the key holds something else by now.
func (s *shelf[V]) drop(key string, same func(V) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.slots[key]
	if at == nil || !same(at.value) {
		return
	}
	delete(s.slots, key)
	if at.timer != nil {
		at.timer.Stop()
	}
	if at.users == 0 {
		s.close(at.value)
	}
}

// empty forgets everything; what is in use is closed when it is released.
func (s *shelf[V]) empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, at := range s.slots {
		delete(s.slots, key)
		if at.timer != nil {
			at.timer.Stop()
		}
		if at.users == 0 {
			s.close(at.value)
		}
	}
}

// room drops the longest idle; it is called with the lock held.
func (s *shelf[V]) room() bool {
	var oldest string
	var found *slot[V]
	for key, at := range s.slots {
		if at.users == 0 && (found == nil || at.since.Before(found.since)) {
			oldest, found = key, at
		}
	}
	if found == nil {
		return false
	}
	if found.timer != nil {
		found.timer.Stop()
		found.timer = nil
	}
	delete(s.slots, oldest)
	s.close(found.value)
	return true
}

func (s *shelf[V]) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.slots)
}
