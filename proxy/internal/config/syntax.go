package config

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// ParseDuration reads digits and a unit (ms, s, m, h, d). Only zero may go
// without one. There are no fractions and no sums, unlike Go's own syntax.
func ParseDuration(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	end := 0
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	if end == 0 {
		return 0, fmt.Errorf("not a duration: %q", s)
	}
	n, err := strconv.ParseUint(s[:end], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("duration out of range: %q", s)
	}
	var unit time.Duration
	switch s[end:] {
	case "ms":
		unit = time.Millisecond
	case "s":
		unit = time.Second
	case "m":
		unit = time.Minute
	case "h":
		unit = time.Hour
	case "d":
		unit = 24 * time.Hour
	case "":
		if n == 0 {
			return 0, nil
		}
		return 0, fmt.Errorf("duration without a unit: %q", s)
	default:
		return 0, fmt.Errorf("unknown unit in duration: %q", s)
	}
	if n > uint64(math.MaxInt64/unit) {
		return 0, fmt.Errorf("duration out of range: %q", s)
	}
	return time.Duration(n) * unit, nil
}

// ParseBool accepts exactly true and false.
func ParseBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("want true or false, got %q", s)
}

func parseAddrs(s string) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for part := range items(s) {
		a, err := netip.ParseAddrPort(part)
		if err != nil {
			return nil, fmt.Errorf("want ip:port, got %q", part)
		}
		out = append(out, a)
	}
	return out, nil
}

// parseIdentity accepts a DNS-like name (lower-cased, no trailing dot) or a URI.
func parseIdentity(s string) (string, error) {
	if scheme, rest, ok := strings.Cut(s, "://"); ok && scheme != "" && rest != "" {
		return s, nil
	}
	return parseDNSName(s)
}

// parseDNSName accepts what goes into an SNI.
func parseDNSName(s string) (string, error) {
	if strings.HasSuffix(s, ".") {
		return "", fmt.Errorf("an identity has no trailing dot: %q", s)
	}
	name := strings.ToLower(s)
	if !validName(name) {
		return "", fmt.Errorf("not an identity: %q", s)
	}
	return name, nil
}

// parseHostPorts reads one address or several.
func parseHostPorts(s string) (string, error) {
	var all []string
	for part := range items(s) {
		addr, err := parseHostPort(part)
		if err != nil {
			return "", err
		}
		all = append(all, addr)
	}
	if len(all) == 0 {
		return "", errors.New("must not be empty")
	}
	return strings.Join(all, ","), nil
}

func parseHostPort(s string) (string, error) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 {
		return "", fmt.Errorf("want host:port, got %q", s)
	}
	port, err := strconv.ParseUint(s[i+1:], 10, 16)
	if err != nil || port == 0 {
		return "", fmt.Errorf("no port in %q", s)
	}
	host := s[:i]
	if a, err := netip.ParseAddrPort(s); err == nil {
		return a.String(), nil
	}
	if strings.ContainsAny(host, ":[]/ ") || !validName(strings.ToLower(strings.TrimSuffix(host, "."))) {
		return "", fmt.Errorf("not a host in %q", s)
	}
	return s, nil
}

func parseJitter(s string) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || f < 0 || f > 100 {
		return 0, fmt.Errorf("not a ratio: %q", s)
	}
	return f, nil
}

func parseUint32(s string) (uint32, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("not a number: %q", s)
	}
	return uint32(n), nil
}

// parseCount takes any 64-bit number, as Linkerd does; what is more than could ever
// be counted is as good as no limit.
func parseCount(s string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("not a count: %q", s)
	}
	return int(min(n, math.MaxInt32)), nil
}

func nonEmpty(s string) (string, error) {
	if strings.TrimSpace(s) == "" {
		return "", errors.New("must not be empty")
	}
	return s, nil
}

// items yields the non-empty members of a comma list.
func items(s string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part != "" && !yield(part) {
				return
			}
		}
	}
}
