package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Ports is a set of ports, held as ranges in ascending order.
type Ports []PortRange

// A PortRange includes both ends.
type PortRange struct{ Low, High uint16 }

// ParsePorts reads "80,8000-8010".
func ParsePorts(s string) (Ports, error) {
	var out Ports
	for part := range items(s) {
		low, high, ranged := strings.Cut(part, "-")
		if !ranged {
			high = low
		}
		a, errA := strconv.ParseUint(strings.TrimSpace(low), 10, 16)
		b, errB := strconv.ParseUint(strings.TrimSpace(high), 10, 16)
		if errA != nil || errB != nil || a > b {
			return nil, fmt.Errorf("not a port or range: %q", part)
		}
		out = append(out, PortRange{uint16(a), uint16(b)})
	}
	slices.SortFunc(out, func(x, y PortRange) int { return int(x.Low) - int(y.Low) })
	return out, nil
}

// Contains reports whether the port is in the set.
func (p Ports) Contains(port uint16) bool {
	return slices.ContainsFunc(p, func(r PortRange) bool { return r.Low <= port && port <= r.High })
}

// Each calls f once for each port, in order, until f returns false.
func (p Ports) Each(f func(uint16) bool) {
	next := 0
	for _, r := range p {
		for port := max(next, int(r.Low)); port <= int(r.High); port++ {
			if !f(uint16(port)) {
				return
			}
			next = port + 1
		}
	}
}

// Suffixes are domain suffixes, lower case, without the trailing dot; the empty
// string is "every name".
type Suffixes []string

// ParseSuffixes reads "svc.cluster.local.,example.com"; "." is every name.
func ParseSuffixes(s string) (Suffixes, error) {
	var out Suffixes
	for part := range items(s) {
		if part == "." {
			out = append(out, "")
			continue
		}
		name := strings.ToLower(strings.TrimSuffix(part, "."))
		if !validName(name) {
			return nil, fmt.Errorf("not a domain suffix: %q", part)
		}
		out = append(out, name)
	}
	return out, nil
}

// Contains reports whether name is one of the suffixes or lies under one.
func (s Suffixes) Contains(name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return slices.ContainsFunc(s, func(suffix string) bool {
		return suffix == "" || name == suffix || strings.HasSuffix(name, "."+suffix)
	})
}

func validName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if c != '-' && c != '_' && c != '*' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
				return false
			}
		}
	}
	return true
}

// ParseNetworks reads a list of CIDRs; a bare address is a network of one.
func ParseNetworks(s string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for part := range items(s) {
		if ip, err := netip.ParseAddr(part); err == nil && ip.Zone() == "" {
			out = append(out, netip.PrefixFrom(ip, ip.BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return nil, fmt.Errorf("not a network: %q", part)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// ParseIPs reads a list of plain addresses. Unlike the other lists it has no empty
// members and is not empty: it says which connections may come in, and none at all
// would mean any.
func ParseIPs(s string) ([]netip.Addr, error) {
	var out []netip.Addr
	for part := range strings.SplitSeq(s, ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil || ip.Zone() != "" {
			return nil, fmt.Errorf("not an address: %q", part)
		}
		out = append(out, ip.Unmap())
	}
	return out, nil
}
