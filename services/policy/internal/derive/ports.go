package derive

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// Ports is a set of TCP ports, kept as sorted ranges that do not touch: a list
// such as 1-65535 costs one range.
type Ports struct{ ranges []portRange }

type portRange struct{ first, last uint16 }

// maxPortEntries bounds what one annotation can cost; more ranges than this
// cannot be told apart by anybody reading the manifest.
const maxPortEntries = 4096

// Contains says whether the port is in the set.
func (p Ports) Contains(port uint16) bool {
	i := sort.Search(len(p.ranges), func(i int) bool { return p.ranges[i].last >= port })
	return i < len(p.ranges) && p.ranges[i].first <= port
}

// Empty says whether no port is in the set.
func (p Ports) Empty() bool { return len(p.ranges) == 0 }

// String writes the set as ParsePorts reads it.
func (p Ports) String() string {
	parts := make([]string, len(p.ranges))
	for i, r := range p.ranges {
		if r.first == r.last {
			parts[i] = strconv.Itoa(int(r.first))
			continue
		}
		parts[i] = fmt.Sprintf("%d-%d", r.first, r.last)
	}
	return strings.Join(parts, ",")
}

// ParsePorts reads a list such as "25,587,4000-4010". Spaces and empty entries
// are allowed. Entries that cannot be read are left out and named in the error;
// the others still count, so that one typo does not open the ports beside it.
func ParsePorts(list string) (Ports, error) {
	var (
		ranges []portRange
		errs   []error
	)
	for i, entry := range strings.Split(list, ",") {
		if i == maxPortEntries {
			errs = append(errs, fmt.Errorf("more than %d entries", maxPortEntries))
			break
		}
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		r, err := parseRange(entry)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ranges = append(ranges, r)
	}
	return Ports{ranges: merge(ranges)}, errors.Join(errs...)
}

func parseRange(entry string) (portRange, error) {
	low, high, isRange := strings.Cut(entry, "-")
	first, err := ParsePort(low)
	if err != nil {
		return portRange{}, err
	}
	if !isRange {
		return portRange{first, first}, nil
	}
	last, err := ParsePort(high)
	if err != nil {
		return portRange{}, err
	}
	if last < first {
		return portRange{}, fmt.Errorf("port range %q ends before it begins", entry)
	}
	return portRange{first, last}, nil
}

// ParsePort reads one port number, 1 to 65535.
func ParsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port from 1 to 65535", s)
	}
	return uint16(n), nil
}

// merge sorts ranges and joins those that overlap or touch.
func merge(ranges []portRange) []portRange {
	if len(ranges) == 0 {
		return nil
	}
	sort.Slice(ranges, func(i, j int) bool { return ranges[i].first < ranges[j].first })
	out := ranges[:1]
	for _, r := range ranges[1:] {
		last := &out[len(out)-1]
		// In ints, so that 65535+1 does not wrap to 0.
		if int(r.first) <= int(last.last)+1 {
			last.last = max(last.last, r.last)
			continue
		}
		out = append(out, r)
	}
	return out
}
