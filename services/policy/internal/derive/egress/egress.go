// Package egress reads EgressNetworks and finds the one that an address outside
// the cluster belongs to. It is pure.
package egress

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// Network is one EgressNetwork, read.
type Network struct {
	// Row must not be changed.
	Row *busv1.EgressNetwork
	// Allow says whether traffic that no route of the network takes may leave.
	Allow bool
	// Overlap names a part of the cluster's networks that the network claims;
	// empty if it claims none.
	Overlap string
	// Problems are entries that could not be read, in words.
	Problems []string

	blocks []block
}

// block is a network less some of its parts.
type block struct {
	net    netip.Prefix
	except []netip.Prefix
}

// New reads a row. A block of which any part cannot be read is left out and
// named in Problems. No list of networks means everything outside the cluster, an
// empty one nothing: a list that lost its entries must not grow to all networks.
func New(c derive.Cluster, row *busv1.EgressNetwork) *Network {
	n := &Network{Row: row, Allow: strings.EqualFold(row.GetTrafficPolicy(), "Allow")}
	for i, w := range row.GetNetworks() {
		b, err := read(w)
		if err != nil {
			n.Problems = append(n.Problems, fmt.Sprintf("spec.networks[%d]: %v", i, err))
			continue
		}
		n.blocks = append(n.blocks, b)
		for _, of := range c.Networks {
			if n.Overlap == "" && b.claims(of) {
				n.Overlap = fmt.Sprintf("%v of the cluster's %v", b.net, of)
			}
		}
	}
	switch {
	case row.GetNoNetworks():
		n.Problems = append(n.Problems, "spec.networks: names no network; leave it out for all outside the cluster")
	case len(row.GetNetworks()) == 0:
		for _, all := range derive.AllNetworks() {
			n.blocks = append(n.blocks, block{net: all, except: c.Networks})
		}
	}
	return n
}

func read(row *busv1.Network) (block, error) {
	net, err := derive.ParseNetwork(row.GetCidr())
	if err != nil {
		return block{}, err
	}
	b := block{net: net}
	for _, e := range row.GetExcept() {
		except, err := derive.ParseNetwork(e)
		if err != nil {
			return block{}, err
		}
		b.except = append(b.except, except)
	}
	return b, nil
}

// claims says whether the block has an address in common with a network.
func (b block) claims(n netip.Prefix) bool {
	if !b.net.Overlaps(n) {
		return false
	}
	if b.net.Bits() > n.Bits() {
		n = b.net
	}
	return !covered(n, b.except)
}

// covered says whether others hold every address of a network. It halves the
// network as long as one of them holds a part of it: at most 128 times for each.
func covered(n netip.Prefix, by []netip.Prefix) bool {
	parts := false
	for _, o := range by {
		if o.Bits() <= n.Bits() && o.Overlaps(n) {
			return true
		}
		parts = parts || o.Overlaps(n)
	}
	if !parts || n.IsSingleIP() {
		return false
	}
	low, high := halves(n)
	return covered(low, by) && covered(high, by)
}

func halves(n netip.Prefix) (low, high netip.Prefix) {
	bits := n.Bits() + 1
	b := n.Addr().AsSlice()
	low = netip.PrefixFrom(n.Addr(), bits)
	b[(bits-1)/8] |= 1 << (7 - (bits-1)%8)
	a, _ := netip.AddrFromSlice(b)
	return low, netip.PrefixFrom(a, bits)
}

// Contains says how many leading bits the closest block around an address has;
// false if no block holds it.
func (n *Network) Contains(a netip.Addr) (bits int, ok bool) {
	bits = -1
	for _, b := range n.blocks {
		if !b.net.Contains(a) || b.net.Bits() <= bits {
			continue
		}
		excepted := false
		for _, e := range b.except {
			excepted = excepted || e.Contains(a)
		}
		if !excepted {
			bits, ok = b.net.Bits(), true
		}
	}
	return bits, ok
}

// Select finds the network that an address belongs to: the closest one, then
// the oldest, then the first by name; nil if there is none. Only an address
// outside the cluster can belong to one. Source: spec/destination-policy.md §9.5.
func Select(c derive.Cluster, networks []*Network, a netip.Addr) *Network {
	a = a.Unmap()
	if c.Contains(a) {
		return nil
	}
	var best *Network
	var most int
	for _, n := range networks {
		bits, ok := n.Contains(a)
		if ok && (best == nil || bits > most || bits == most && older(n, best)) {
			best, most = n, bits
		}
	}
	return best
}

// older follows the age, of which 0 is unknown and last, then the name.
func older(a, b *Network) bool {
	x, y := a.Row.GetCreatedAt(), b.Row.GetCreatedAt()
	if x == 0 || y == 0 {
		x, y = -x, -y // the known one is the smaller now
	}
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(a.Row.GetNamespace(), b.Row.GetNamespace()), cmp.Compare(a.Row.GetName(), b.Row.GetName())) < 0
}
