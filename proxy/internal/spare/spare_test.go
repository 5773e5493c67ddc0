package spare

import (
	"sync"
	"testing"
)

func TestPool(t *testing.T) {
	made := 0
	p := Pool[int]{Make: func() *int { made++; return &made }}
	a := p.Get()
	p.Put(a)
	if b := p.Get(); b != a || made != 1 {
		t.Errorf("%d were made, want what was given back", made)
	}
	p.Small = true
	var all []*int
	for range 3 * hands {
		all = append(all, p.Get())
	}
	made = 0
	for _, a := range all {
		p.Put(a)
	}
	for range hands {
		p.Get()
	}
	if made != 0 {
		t.Errorf("%d were made of what is at hand", made)
	}
	var zero Pool[[4]byte]
	if b := zero.Get(); *b != [4]byte{} {
		t.Errorf("a pool that makes nothing gives %v", *b)
	}
}

// TestNobodyShares: what one has, no other gets.
func TestNobodyShares(t *testing.T) {
	var p Pool[struct{ owners int }]
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				a, b := p.Get(), p.Get()
				a.owners++ // the race detector sees another
				b.owners++
				if a == b || a.owners != 1 || b.owners != 1 {
					t.Errorf("owned by %d and %d, want one each", a.owners, b.owners)
				}
				a.owners--
				b.owners--
				p.Put(a)
				p.Put(b)
			}
		})
	}
	wg.Wait()
}
