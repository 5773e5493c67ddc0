package source

import (
	"sync"
	"time"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// Queue holds the names of changed objects until they are taken. A name is in
// it at most once, with the time at which it was first put in, so that it is
// bounded by the number of objects and a late reader sees how late it is.
type Queue struct {
	mu    sync.Mutex
	order []Change
	at    map[shape.ID]struct{}
	// some has room for one signal: "the queue is not empty".
	some chan struct{}
}

// Change names an object that may have changed, and when that was noticed.
type Change struct {
	ID   shape.ID
	Seen time.Time
}

// NewQueue makes an empty queue.
func NewQueue() *Queue {
	return &Queue{at: make(map[shape.ID]struct{}), some: make(chan struct{}, 1)}
}

// Add puts a name in. It never waits.
func (q *Queue) Add(id shape.ID, seen time.Time) {
	q.mu.Lock()
	if _, in := q.at[id]; !in {
		q.at[id] = struct{}{}
		q.order = append(q.order, Change{id, seen})
	}
	q.mu.Unlock()
	q.signal()
}

// Wake makes Some fire although nothing was added, for a change that has no
// object, such as a file that can't be read.
func (q *Queue) Wake() { q.signal() }

func (q *Queue) signal() {
	select {
	case q.some <- struct{}{}:
	default:
	}
}

// Some is readable when there may be something to take.
func (q *Queue) Some() <-chan struct{} { return q.some }

// Take removes at most most names, oldest first. Whoever takes a name must look
// the object up afterwards; a change after that puts the name in again.
func (q *Queue) Take(most int) []Change {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(most, len(q.order))
	out := q.order[:n:n]
	rest := q.order[n:]
	for _, c := range out {
		delete(q.at, c.ID)
	}
	if len(rest) == 0 {
		q.order = nil
		return out
	}
	q.order = append([]Change(nil), rest...)
	q.signal()
	return out
}

// Len is how many names wait.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.order)
}
