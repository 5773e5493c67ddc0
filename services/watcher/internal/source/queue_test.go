package source_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
	"github.com/weftmesh/weft/services/watcher/internal/source"
)

func pod(name string) shape.ID { return shape.ID{Kind: shape.Pod, Namespace: "grove", Name: name} }

func TestQueueKeepsEachNameOnceWithItsFirstTime(t *testing.T) {
	q := source.NewQueue()
	q.Add(pod("a"), time.Unix(1, 0))
	q.Add(pod("b"), time.Unix(2, 0))
	q.Add(pod("a"), time.Unix(3, 0))
	if n := q.Len(); n != 2 {
		t.Fatalf("Len() = %d, want 2", n)
	}
	got := q.Take(1)
	if len(got) != 1 || got[0] != (source.Change{ID: pod("a"), Seen: time.Unix(1, 0)}) {
		t.Errorf("Take(1) = %v, want a at 1", got)
	}
	q.Add(pod("a"), time.Unix(4, 0)) // changed after it was taken
	if got := q.Take(10); len(got) != 2 || got[0].ID != pod("b") || got[1] != (source.Change{ID: pod("a"), Seen: time.Unix(4, 0)}) {
		t.Errorf("Take(10) = %v, want b and a at 4", got)
	}
	if got := q.Take(10); len(got) != 0 {
		t.Errorf("Take(10) of an empty queue = %v", got)
	}
}

// TestQueueSignals: after a partial Take somebody is told to come again.
func TestQueueSignals(t *testing.T) {
	q := source.NewQueue()
	signalled := func() bool {
		select {
		case <-q.Some():
			return true
		default:
			return false
		}
	}
	if signalled() {
		t.Error("an empty queue says that there is something")
	}
	q.Add(pod("a"), time.Time{})
	q.Add(pod("b"), time.Time{})
	if !signalled() || signalled() {
		t.Error("two names must give one signal")
	}
	q.Take(1)
	if !signalled() {
		t.Error("no signal although one name is left")
	}
	q.Take(1)
	if signalled() {
		t.Error("a signal although none is left")
	}
	q.Wake()
	if !signalled() {
		t.Error("Wake gave no signal")
	}
}

// TestQueueIsBoundedByNames: whatever is added by however many, what is held is
// one entry a name, and nobody waits for the reader.
func TestQueueIsBoundedByNames(t *testing.T) {
	q := source.NewQueue()
	var adders sync.WaitGroup
	for range 8 {
		adders.Go(func() {
			for i := range 10_000 {
				q.Add(pod(fmt.Sprint(i%100)), time.Time{})
			}
		})
	}
	adders.Wait()
	if n := q.Len(); n != 100 {
		t.Errorf("Len() = %d, want 100", n)
	}
}

func ExampleQueue() {
	q := source.NewQueue()
	q.Add(shape.ID{Kind: shape.Service, Namespace: "grove", Name: "plum"}, time.Now())
	q.Add(shape.ID{Kind: shape.Service, Namespace: "grove", Name: "plum"}, time.Now())
	for _, c := range q.Take(100) {
		fmt.Println(c.ID)
	}
	// Output: Service grove/plum
}
