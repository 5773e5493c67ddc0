package table

import (
	"sync"

	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// How many answers are kept for those who ask the same again. Beyond that an
// answer is made for the asker alone: who asks for every port of a service must
// not fill the memory.
const (
	maxAnswersPerScope  = 1024
	maxAnswersPerTarget = 64
)

// Shared keeps answers that were made from one immutable value. It goes away
// with that value, so nothing in it is ever out of date.
type Shared[K comparable] struct {
	mu      sync.Mutex
	limit   int
	answers map[K]*derive.Answer
}

func newShared[K comparable](limit int) *Shared[K] { return &Shared[K]{limit: limit} }

// Get returns the kept answer or makes it. Two who ask at once may both make
// it; they get the same one if there is room.
func (s *Shared[K]) Get(key K, build func() (*derive.Answer, error)) (*derive.Answer, error) {
	s.mu.Lock()
	a := s.answers[key]
	s.mu.Unlock()
	if a != nil {
		return a, nil
	}
	a, err := build()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept := s.answers[key]; kept != nil {
		return kept, nil
	}
	if len(s.answers) < s.limit {
		if s.answers == nil {
			s.answers = map[K]*derive.Answer{}
		}
		s.answers[key] = a
	}
	return a, nil
}
