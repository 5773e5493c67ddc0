package allow

import (
	"errors"
	"net/netip"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/net"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// networks turns a list of networks into what the proxy matches. One
// entry that cannot be read spoils the whole: an exception that is left out
// would let somebody in.
func networks(rows []*busv1.Network) ([]*inbound.Network, error) {
	var out []*inbound.Network
	for _, n := range rows {
		cidr, err := derive.ParseNetwork(n.GetCidr())
		if err != nil {
			return nil, err
		}
		network := &inbound.Network{Net: ipNetwork(cidr)}
		for _, e := range n.GetExcept() {
			except, err := derive.ParseNetwork(e)
			if err != nil {
				return nil, err
			}
			network.Except = append(network.Except, ipNetwork(except))
		}
		out = append(out, network)
	}
	if len(out) == 0 {
		return nil, errors.New("no networks")
	}
	return out, nil
}

func plainNetworks(prefixes []netip.Prefix) []*inbound.Network {
	out := make([]*inbound.Network, len(prefixes))
	for i, p := range prefixes {
		out[i] = &inbound.Network{Net: ipNetwork(p)}
	}
	return out
}

func ipNetwork(p netip.Prefix) *net.IPNetwork {
	return &net.IPNetwork{Ip: derive.IPAddress(p.Addr()), PrefixLen: uint32(p.Bits())}
}
