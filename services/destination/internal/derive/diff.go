package derive

import (
	"bytes"
	"maps"
	"net/netip"
	"slices"

	"github.com/weftmesh/weft/services/destination/internal/row"
)

// Equal reports whether two views say the same.
func (v *View) Equal(w *View) bool {
	if v == nil || w == nil {
		return v == w
	}
	return v.Local == w.Local && (v.Refusal == nil) == (w.Refusal == nil) && maps.Equal(v.Labels, w.Labels) &&
		slices.EqualFunc(v.Addrs, w.Addrs, func(a, b Addr) bool { return a.At == b.At && bytes.Equal(a.Bytes, b.Bytes) })
}

// Diff is what turns one view into another: addresses to send, new or changed,
// and addresses to withdraw. A change of the shared labels sends everything.
func Diff(sent, now *View) (add []Addr, remove []netip.AddrPort) {
	if sent == nil {
		sent = &View{}
	}
	old, same := sent.Addrs, maps.Equal(sent.Labels, now.Labels)
	i := 0
	for _, a := range now.Addrs {
		for i < len(old) && old[i].At.Compare(a.At) < 0 {
			remove = append(remove, old[i].At)
			i++
		}
		if i < len(old) && old[i].At == a.At {
			if !same || !bytes.Equal(old[i].Bytes, a.Bytes) {
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
	same map[string]bool // namespaces whose Servers are what they were
	was  map[string][]*row.Server
	are  map[string][]*row.Server
}

func newMemo(last *View, servers map[string][]*row.Server) *memo {
	if last == nil {
		return &memo{}
	}
	return &memo{last: last.Addrs, same: make(map[string]bool, 1), was: last.servers, are: servers}
}

// find is the encoded address of the same rows. Rows are immutable, so the same
// pointers mean the same content.
func (m *memo) find(b candidate) ([]byte, bool) {
	for len(m.last) > 0 && m.last[0].At.Compare(b.at) < 0 {
		m.last = m.last[1:]
	}
	if len(m.last) == 0 || m.last[0].At != b.at || m.last[0].from != b.Backend || !m.sameServers(b) {
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
