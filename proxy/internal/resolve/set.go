package resolve

import (
	"net/netip"
	"slices"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
)

// set accumulates what one Destination.Get says. It keeps its endpoints over the
// end of a stream; the first Add on the next replaces them all at once, so a set
// is never empty in between.
type set struct {
	fresh bool // nothing has come on the current stream yet
	known bool // something has come at all
	eps   map[netip.AddrPort]Endpoint
}

// Op says what an update did, as the op label has it.
type Op string

// The operations.
const (
	OpReset        Op = "Reset"
	OpAdd          Op = "Add"
	OpRemove       Op = "Remove"
	OpDoesNotExist Op = "DoesNotExist"
)

// opened tells the set that a stream begins.
func (s *set) opened() { s.fresh = true }

// apply takes an update. It is false if nothing was said that anyone needs to hear.
func (s *set) apply(u *destpb.Update) (Op, bool) {
	switch u := u.GetUpdate().(type) {
	case *destpb.Update_Add:
		return s.add(u.Add)
	case *destpb.Update_Remove:
		if s.fresh || len(u.Remove.GetAddrs()) == 0 {
			return "", false // about a set that this stream has not given yet
		}
		for _, a := range u.Remove.GetAddrs() {
			if addr, ok := addrOf(a); ok {
				delete(s.eps, addr)
			}
		}
		return OpRemove, true
	case *destpb.Update_NoEndpoints:
		s.fresh, s.known, s.eps = false, true, nil
		if !u.NoEndpoints.GetExists() {
			return OpDoesNotExist, true
		}
		return OpReset, true
	}
	return "", false
}

func (s *set) add(add *destpb.WeightedAddrSet) (Op, bool) {
	if len(add.GetAddrs()) == 0 {
		return "", false
	}
	op := OpAdd
	if s.fresh || s.eps == nil {
		op, s.eps = OpReset, map[netip.AddrPort]Endpoint{}
	}
	s.fresh, s.known = false, true
	for _, w := range add.GetAddrs() {
		if e, ok := endpointOf(w, add.GetMetricLabels()); ok {
			s.eps[e.Addr] = e
		}
	}
	return op, true
}

// endpoints is the whole set, in the order of addresses.
func (s *set) endpoints() []Endpoint {
	all := make([]Endpoint, 0, len(s.eps))
	for _, e := range s.eps {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Endpoint) int { return a.Addr.Compare(b.Addr) })
	return all
}
