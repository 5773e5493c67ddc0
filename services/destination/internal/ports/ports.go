// Package ports holds sets of TCP ports as annotations and flags write them:
// "25, 587,8000-8010,http". A Set is a value and never changes once made.
package ports

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxItems bounds what one annotation can cost: Kubernetes allows 256 KiB of
// annotations, and no workload has more ports than this in ranges worth naming.
const maxItems = 4096

// span is an inclusive range.
type span struct{ first, last uint16 }

// Set is a set of ports; the zero Set is empty.
type Set struct{ spans []span }

// Of makes a set of single ports.
func Of(ports ...uint16) Set {
	var s Set
	for _, p := range ports {
		s.spans = append(s.spans, span{p, p})
	}
	return s.normal()
}

// Has reports whether the port is in the set.
func (s Set) Has(port uint16) bool {
	at, found := slices.BinarySearchFunc(s.spans, port, func(r span, p uint16) int {
		switch {
		case r.last < p:
			return -1
		case r.first > p:
			return 1
		default:
			return 0
		}
	})
	return found && at < len(s.spans)
}

// Empty reports whether the set has no port.
func (s Set) Empty() bool { return len(s.spans) == 0 }

// String writes the set as Parse reads it.
func (s Set) String() string {
	var b strings.Builder
	for i, r := range s.spans {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(r.first)))
		if r.last != r.first {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(int(r.last)))
		}
	}
	return b.String()
}

// Parse reads a list in which every item must be a port or a range. It is for
// flags, where a mistake has to be told to a person.
func Parse(list string) (Set, error) {
	var s Set
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		r, ok := parseSpan(item)
		if !ok {
			return Set{}, fmt.Errorf("reading ports: %q is neither a port from 1 to 65535 nor a range", item)
		}
		s.spans = append(s.spans, r)
	}
	return s.normal(), nil
}

// ParseAnnotation reads what it can: an item that is neither a port nor a range
// is looked up with named (which may be nil), and left out if nothing has that
// name. A user's typing mistake must not take the other ports with it.
func ParseAnnotation(list string, named func(name string) []uint16) Set {
	var s Set
	items := 0
	for item := range strings.SplitSeq(list, ",") {
		if items++; items > maxItems {
			break
		}
		item = strings.TrimSpace(item)
		// A port may have a name that looks like a range ("1-a" does not, "80-90"
		// does not pass as a name in Kubernetes), so numbers come first.
		if r, ok := parseSpan(item); ok {
			s.spans = append(s.spans, r)
			continue
		}
		if named == nil || item == "" {
			continue
		}
		for _, p := range named(item) {
			if p != 0 {
				s.spans = append(s.spans, span{p, p})
			}
		}
	}
	return s.normal()
}

func parseSpan(item string) (span, bool) {
	from, to, isRange := strings.Cut(item, "-")
	first, ok := parsePort(from)
	if !ok {
		return span{}, false
	}
	if !isRange {
		return span{first, first}, true
	}
	last, ok := parsePort(to)
	if !ok || last < first {
		return span{}, false
	}
	return span{first, last}, true
}

func parsePort(text string) (uint16, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16)
	if err != nil || n == 0 {
		return 0, false
	}
	return uint16(n), true
}

// normal sorts and joins the spans, so that Has can search and equal sets print
// alike.
func (s Set) normal() Set {
	slices.SortFunc(s.spans, func(a, b span) int { return int(a.first) - int(b.first) })
	out := s.spans[:0]
	for _, r := range s.spans {
		if n := len(out); n > 0 && int(r.first) <= int(out[n-1].last)+1 {
			out[n-1].last = max(out[n-1].last, r.last)
			continue
		}
		out = append(out, r)
	}
	return Set{spans: slices.Clip(out)}
}
