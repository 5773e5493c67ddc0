package table

import (
	"iter"
	"net/netip"
	"slices"
)

// index finds entries by address. Nearly every address has one entry, which is
// in the map itself; those of a node that many pods share are kept apart.
type index[E comparable] struct {
	first map[netip.Addr]E
	more  map[netip.Addr][]E
}

func newIndex[E comparable]() index[E] {
	return index[E]{first: make(map[netip.Addr]E), more: make(map[netip.Addr][]E)}
}

// put files an entry; twice is once.
func (x index[E]) put(ip netip.Addr, e E) {
	first, taken := x.first[ip]
	switch {
	case !taken:
		x.first[ip] = e
	case first != e && !slices.Contains(x.more[ip], e):
		x.more[ip] = append(x.more[ip], e)
	}
}

// drop removes an entry, and the address with its last one.
func (x index[E]) drop(ip netip.Addr, e E) {
	first, taken := x.first[ip]
	more := x.more[ip]
	i := slices.Index(more, e)
	switch {
	case taken && first == e && len(more) == 0:
		delete(x.first, ip)
		return
	case taken && first == e:
		x.first[ip], i = more[0], 0
	case i < 0:
		return
	}
	if len(more) == 1 {
		delete(x.more, ip)
	} else {
		x.more[ip] = slices.Delete(more, i, i+1)
	}
}

// at is what is filed under an address, in no order.
func (x index[E]) at(ip netip.Addr) iter.Seq[E] {
	return func(yield func(E) bool) {
		first, taken := x.first[ip]
		if !taken || !yield(first) {
			return
		}
		for _, e := range x.more[ip] {
			if !yield(e) {
				return
			}
		}
	}
}
