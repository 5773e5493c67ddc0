package rule

import (
	"net/netip"

	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// network is a network with exceptions.
type network struct {
	CIDR   string   `json:"cidr"`
	Except []string `json:"except"`
}

func networks(f *finder, field string, all []network) {
	for i, n := range all {
		here := at(field, i)
		cidr, ok := cidr(f, here+".cidr", n.CIDR)
		for j, text := range n.Except {
			except, valid := cidrOf(f, at(here+".except", j), text)
			if !ok || !valid {
				continue
			}
			switch {
			case covers(except, cidr):
				f.bad(at(here+".except", j), "is "+quote(text), "it takes away all of "+cidr.String(), "except a part of the network, or leave the network out")
			case !covers(cidr, except):
				f.bad(at(here+".except", j), "is "+quote(text), "it is not inside "+cidr.String(), "except only networks that are a part of cidr")
			}
		}
	}
}

func cidr(f *finder, field, text string) (netip.Prefix, bool) {
	if !f.need(field, text, "a network such as 10.0.0.0/8") {
		return netip.Prefix{}, false
	}
	return cidrOf(f, field, text)
}

func cidrOf(f *finder, field, text string) (netip.Prefix, bool) {
	p, err := derive.ParseNetwork(text)
	if err != nil {
		f.bad(field, "is "+quote(text), "it is no network and no address", "write it like 10.0.0.0/8 or fd00::/8")
	}
	return p, err == nil
}

// covers says whether every address of b is in a.
func covers(a, b netip.Prefix) bool { return a.Bits() <= b.Bits() && a.Contains(b.Addr()) }

type networkAuthenticationSpec struct {
	Networks []network `json:"networks"`
}

func networkAuthentication(f *finder, _ head, s networkAuthenticationSpec) {
	if len(s.Networks) == 0 {
		f.bad("spec.networks", "is empty", "an authentication without networks lets nobody in", "add a network, such as {cidr: 10.0.0.0/8}")
	}
	networks(f, "spec.networks", s.Networks)
}

type egressNetworkSpec struct {
	// Networks is nil when the field is absent, which means all outside the cluster.
	Networks      *[]network `json:"networks"`
	TrafficPolicy string     `json:"trafficPolicy"`
}

func egressNetwork(f *finder, _ head, s egressNetworkSpec) {
	if s.TrafficPolicy != "Allow" && s.TrafficPolicy != "Deny" {
		f.bad("spec.trafficPolicy", "is "+quote(s.TrafficPolicy), "it must be Allow or Deny", "say what becomes of traffic that no route takes")
	}
	if s.Networks == nil {
		return
	}
	if len(*s.Networks) == 0 {
		f.bad("spec.networks", "is empty", "the egress network would be about no address", "leave the field out to mean everything outside the cluster")
	}
	networks(f, "spec.networks", *s.Networks)
}
