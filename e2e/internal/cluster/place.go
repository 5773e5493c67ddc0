package cluster

import (
	"fmt"
	"net/netip"

	"github.com/weftmesh/weft/e2e/internal/node"
)

// place is what the rest of the package has to know of a cluster's addresses.
type place struct {
	name    string
	number  int // from 1 on, in its range
	network node.Range
	six     bool // IPv6 as well
}

const apiPort = 6443

func (p place) server() string {
	return "https://" + netip.AddrPortFrom(p.network.Node(p.number, 1), apiPort).String()
}

// both joins an address or network and its IPv6 counterpart, if there is one, as
// Kubernetes' flags take them.
func (p place) both(four, six fmt.Stringer) string {
	if !p.six {
		return four.String()
	}
	return four.String() + "," + six.String()
}

func (p place) services() string {
	return p.both(p.network.Services(p.number), p.network.Services6(p.number))
}

func (p place) allPods() string {
	return p.both(p.network.AllPods(p.number), p.network.AllPods6(p.number))
}

func (p place) node(number int) string {
	return p.both(p.network.Node(p.number, number), p.network.Node6(p.number, number).Addr())
}

// pods6 is empty without IPv6.
func (p place) pods6(number int) string {
	if !p.six {
		return ""
	}
	return p.network.Pods6(p.number, number).String()
}

// controlUser runs the control plane, which needs no root: the kernel counts
// inotify instances for each user (128 by default), and of the twenty-five that a
// cluster takes sixteen are the control plane's.
func (p place) controlUser() uint32 {
	const first = 64000 // in no range that distributions give to people or services
	return uint32(first + 10*int(p.network) + p.number)
}
