package node

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// Range is one of fifteen parts of 10.0.0.0/8, by its number from 1 on; one
// switch and its clusters live in it. Private addresses, since that is what
// Linkerd's default clusterNetworks hold.
type Range int

// ranges are tried in this order: the low ones are the likeliest to be in use.
var ranges = []Range{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 3, 2, 1}

// MaxClusters is how many clusters a range has addresses for.
const MaxClusters = 7

// MaxNodes is how many nodes a cluster has addresses for.
const MaxNodes = 9

func (r Range) link() string { return fmt.Sprintf("weft%d", int(r)) }

func (r Range) at(second, third, last int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(16*int(r) + second), byte(third), byte(last)})
}

func (r Range) whole() netip.Prefix { return netip.PrefixFrom(r.at(0, 0, 0), 12) }

// Nodes is the network of all nodes of all clusters.
func (r Range) Nodes() netip.Prefix { return netip.PrefixFrom(r.at(0, 0, 0), 16) }

// Machine is the address of the machine itself in that network.
func (r Range) Machine() netip.Addr { return r.at(0, 0, 1) }

// Node is the address of a cluster's node; both count from 1.
func (r Range) Node(cluster, node int) netip.Addr { return r.at(0, cluster, 10+node) }

// AllPods is the network of a cluster's pods.
func (r Range) AllPods(cluster int) netip.Prefix { return netip.PrefixFrom(r.at(2*cluster, 0, 0), 16) }

// Pods is the network of a node's pods.
func (r Range) Pods(cluster, node int) netip.Prefix {
	return netip.PrefixFrom(r.at(2*cluster, node, 0), 24)
}

// Services is the range of a cluster's service addresses.
func (r Range) Services(cluster int) netip.Prefix {
	return netip.PrefixFrom(r.at(2*cluster+1, 0, 0), 16)
}

// Service is one of them.
func (r Range) Service(cluster, last int) netip.Addr { return r.at(2*cluster+1, 0, last) }

func (r Range) overlaps(taken []netip.Prefix) bool {
	return slices.ContainsFunc(taken, r.whole().Overlaps)
}

// taken lists the networks of the machine: of its interfaces and its routes.
func taken() ([]netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	var out []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p)
		}
	}
	table, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	return append(out, routes(string(table))...), nil
}

// routes reads /proc/net/route, without the default route, which every machine has.
func routes(table string) []netip.Prefix {
	var out []netip.Prefix
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		to, err1 := hex.DecodeString(f[1])
		mask, err2 := hex.DecodeString(f[7])
		if err1 != nil || err2 != nil || len(to) != 4 || len(mask) != 4 {
			continue
		}
		slices.Reverse(to) // the kernel prints them as little-endian numbers
		slices.Reverse(mask)
		if ones := bits(binary.BigEndian.Uint32(mask)); ones > 0 {
			out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte(to)), ones))
		}
	}
	return out
}

func bits(mask uint32) int {
	n := 0
	for ; mask&(1<<31) != 0; mask <<= 1 {
		n++
	}
	return n
}

// NodePrefix is the node's address with the length of the nodes' network.
func (r Range) NodePrefix(cluster, node int) netip.Prefix {
	return netip.PrefixFrom(r.Node(cluster, node), r.Nodes().Bits())
}
