package derive

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// DefaultPolicy says who may come in where no object says otherwise.
type DefaultPolicy string

// The default policies. Source: spec/destination-policy.md §8.
const (
	Deny                   DefaultPolicy = "deny"
	Audit                  DefaultPolicy = "audit"
	AllUnauthenticated     DefaultPolicy = "all-unauthenticated"
	AllAuthenticated       DefaultPolicy = "all-authenticated"
	ClusterUnauthenticated DefaultPolicy = "cluster-unauthenticated"
	ClusterAuthenticated   DefaultPolicy = "cluster-authenticated"
)

// ParseDefaultPolicy reads a policy's name.
func ParseDefaultPolicy(s string) (DefaultPolicy, error) {
	switch p := DefaultPolicy(s); p {
	case Deny, Audit, AllUnauthenticated, AllAuthenticated, ClusterUnauthenticated, ClusterAuthenticated:
		return p, nil
	}
	return "", fmt.Errorf("%q is not one of deny, audit, all-unauthenticated, all-authenticated, cluster-unauthenticated and cluster-authenticated", s)
}

// Authenticated is the policy for a port that requires identity: the same
// networks, but only clients that prove who they are. Deny and audit stay as
// they are.
func (p DefaultPolicy) Authenticated() DefaultPolicy {
	switch p {
	case AllUnauthenticated:
		return AllAuthenticated
	case ClusterUnauthenticated:
		return ClusterAuthenticated
	}
	return p
}

// RequiresIdentity says whether the policy admits only clients with an identity.
func (p DefaultPolicy) RequiresIdentity() bool {
	return p == AllAuthenticated || p == ClusterAuthenticated
}

// OnlyCluster says whether the policy admits only the cluster's networks.
func (p DefaultPolicy) OnlyCluster() bool {
	return p == ClusterAuthenticated || p == ClusterUnauthenticated
}

// AllNetworks are the networks that every client is in.
func AllNetworks() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
}

// ParseNetworks reads a list of CIDRs; a bare address is a network of one.
func ParseNetworks(list []string) ([]netip.Prefix, error) {
	var (
		out  []netip.Prefix
		errs []error
	)
	for _, s := range list {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		n, err := ParseNetwork(s)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, n)
	}
	return out, errors.Join(errs...)
}

// ParseNetwork reads one CIDR, or an address as a network of one. Bits beyond
// the prefix are cleared.
func ParseNetwork(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a network such as 10.0.0.0/8", s)
	}
	return p.Masked(), nil
}
