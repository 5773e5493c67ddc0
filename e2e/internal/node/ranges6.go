package node

import "net/netip"

// The IPv6 networks of a range are in fd77:6566:74<range>::/48, a part of the
// unique local addresses: the same layout as IPv4's, with room to spare.
func (r Range) at6(kind, cluster, node, last int) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0: 0xfd, 1: 0x77, 2: 0x65, 3: 0x66, 4: 0x74, 5: byte(r),
		6: byte(kind), 7: byte(cluster), 9: byte(node), 15: byte(last),
	})
}

const (
	kindNodes = iota
	kindPods
	kindServices
)

// Nodes6 is the network of all nodes of all clusters.
func (r Range) Nodes6() netip.Prefix { return netip.PrefixFrom(r.at6(kindNodes, 0, 0, 0), 64) }

// Machine6 is the address of the machine itself in that network.
func (r Range) Machine6() netip.Addr { return r.at6(kindNodes, 0, 0, 1) }

// Node6 is the address of a cluster's node, with the length of the network.
func (r Range) Node6(cluster, node int) netip.Prefix {
	return netip.PrefixFrom(r.at6(kindNodes, 0, cluster, 10+node), r.Nodes6().Bits())
}

// AllPods6 is the network of a cluster's pods.
func (r Range) AllPods6(cluster int) netip.Prefix {
	return netip.PrefixFrom(r.at6(kindPods, cluster, 0, 0), 64)
}

// Pods6 is the network of a node's pods.
func (r Range) Pods6(cluster, node int) netip.Prefix {
	return netip.PrefixFrom(r.at6(kindPods, cluster, node, 0), 80)
}

// Services6 is the range of a cluster's service addresses; the API server takes
// no larger one than a /108.
func (r Range) Services6(cluster int) netip.Prefix {
	return netip.PrefixFrom(r.at6(kindServices, cluster, 0, 0), 112)
}
