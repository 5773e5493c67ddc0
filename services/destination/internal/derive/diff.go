package derive

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/weftmesh/weft/services/destination/internal/row"
)

// Equal reports whether two views say the same.
func (v *View) Equal(w *View) bool {
	if v == nil || w == nil {
		return v == w
	}
	same := sameSets(v, w)
	return v.Local == w.Local && len(v.Sets) == len(w.Sets) &&
		slices.EqualFunc(v.Addrs, w.Addrs, func(a, b Addr) bool { return a.At == b.At && same(a, b) })
}

// sameSets tells of two addresses whether a client would find no difference.
// Each pair of sets is compared once, not once for each address.
func sameSets(was, are *View) func(a, b Addr) bool {
	equal := make(map[[2]int32]bool, len(are.Sets))
	return func(a, b Addr) bool {
		pair := [2]int32{a.Set, b.Set}
		labels, asked := equal[pair]
		if !asked {
			labels = bytes.Equal(was.Sets[a.Set].Labels, are.Sets[b.Set].Labels)
			equal[pair] = labels
		}
		return labels && was.near(a) == are.near(b) && bytes.Equal(a.Bytes, b.Bytes)
	}
}

// Diff is what turns one view into another: addresses to send, new or changed,
// and addresses to withdraw. A change of a set's labels sends all of the set.
func Diff(sent, now *View) (add []Addr, remove []netip.AddrPort) {
	if sent == nil {
		return now.Addrs, nil
	}
	old, same := sent.Addrs, sameSets(sent, now)
	i := 0
	for _, a := range now.Addrs {
		for i < len(old) && old[i].At.Compare(a.At) < 0 {
			remove = append(remove, old[i].At)
			i++
		}
		if i < len(old) && old[i].At == a.At {
			if !same(old[i], a) {
				add = append(add, a)
			}
			i++
			continue
		}
		add = append(add, a)
	}
	for ; i < len(old); i++ {
		remove = append(remove, old[i].At)
	}
	return add, remove
}

// memo finds addresses of the last view that can be used again. Both are in
// order of address, so it only ever walks forward.
type memo struct {
	last []Addr
	set  int32
	same map[string]bool // namespaces whose Servers are what they were
	was  map[string][]*row.Server
	are  map[string][]*row.Server
}

// newMemo looks into the set of the same position; it may be another member's,
// of which no row is found.
func newMemo(last *View, i int, now Set) *memo {
	if last == nil || i >= len(last.Sets) || last.Sets[i].trust != now.trust {
		return &memo{}
	}
	return &memo{last: last.Addrs, set: int32(i), same: make(map[string]bool, 1), was: last.Sets[i].servers, are: now.servers}
}

// find is the encoded address of the same rows. Rows are immutable, so the same
// pointers mean the same content.
func (m *memo) find(b candidate) ([]byte, bool) {
	for len(m.last) > 0 && m.last[0].At.Compare(b.at) < 0 {
		m.last = m.last[1:]
	}
	if len(m.last) == 0 || m.last[0].At != b.at || m.last[0].Set != m.set || m.last[0].from != b.Backend || !m.sameServers(b) {
		return nil, false
	}
	return m.last[0].Bytes, true
}

func (m *memo) sameServers(b candidate) bool {
	if b.Peer.Workload == nil {
		return true
	}
	ns := b.Peer.Workload.Namespace
	same, asked := m.same[ns]
	if !asked {
		same = slices.Equal(m.was[ns], m.are[ns])
		m.same[ns] = same
	}
	return same
}
