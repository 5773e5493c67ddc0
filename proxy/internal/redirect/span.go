package redirect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Span is a run of ports or addresses, both ends included. A port is two bytes,
// an address four or sixteen, in network order: as the kernel compares them.
type Span struct{ First, Last []byte }

// ParsePorts reads ports and ranges ("80", "1000-2000") and merges them. An empty
// element, as a trailing comma leaves, is nothing. The error names every element
// that is wrong, as that of ParseSubnets does.
func ParsePorts(list []string) ([]Span, error) {
	var spans []Span
	var bad faults
	for _, text := range list {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		first, last, isRange := strings.Cut(text, "-")
		if !isRange {
			last = first
		}
		from, err1 := port(first)
		to, err2 := port(last)
		if err := errors.Join(err1, err2); err != nil {
			bad.add("%q is neither a port nor a range of ports (0 to 65535, as in 1000-2000)", text)
			continue
		}
		if from > to {
			bad.add("the range %q ends before it begins", text)
			continue
		}
		spans = append(spans, Span{binary.BigEndian.AppendUint16(nil, from), binary.BigEndian.AppendUint16(nil, to)})
	}
	if err := bad.err(); err != nil {
		return nil, err
	}
	return merge(spans)
}

// named is how many wrong elements of a list an error names; the list may have
// thousands.
const named = 20

// faults are the wrong elements of a list, in words.
type faults struct {
	words []string
	more  int
}

func (f *faults) add(format, text string) {
	if len(f.words) >= named {
		f.more++
		return
	}
	f.words = append(f.words, fmt.Sprintf(format, clip(text)))
}

func (f *faults) err() error {
	if len(f.words) == 0 {
		return nil
	}
	if f.more > 0 {
		f.words = append(f.words, fmt.Sprintf("and %d more", f.more))
	}
	return errors.New(strings.Join(f.words, "; "))
}

func port(s string) (uint16, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 16)
	return uint16(n), err
}

// ParseSubnets reads CIDRs and merges them, a family at a time. A lone address is
// refused, as Linkerd refuses it; bits beyond the prefix are ignored.
func ParseSubnets(list []string) (v4, v6 []Span, err error) {
	var bad faults
	for _, text := range list {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			bad.add("%q is not a subnet (such as 10.0.0.0/8 or fd00::/8)", text)
			continue
		}
		prefix = prefix.Masked()
		first := prefix.Addr().AsSlice()
		last := slices.Clone(first)
		for bit := prefix.Bits(); bit < len(last)*8; bit++ {
			last[bit/8] |= 0x80 >> (bit % 8)
		}
		if prefix.Addr().Is4() {
			v4 = append(v4, Span{first, last})
		} else {
			v6 = append(v6, Span{first, last})
		}
	}
	if err := bad.err(); err != nil {
		return nil, nil, err
	}
	if v4, err = merge(v4); err != nil {
		return nil, nil, err
	}
	v6, err = merge(v6)
	return v4, v6, err
}

// merge sorts spans and joins those that overlap or touch: the kernel refuses a
// set whose intervals overlap.
func merge(spans []Span) ([]Span, error) {
	slices.SortFunc(spans, func(a, b Span) int { return slices.Compare(a.First, b.First) })
	var out []Span
	for _, s := range spans {
		if n := len(out); n > 0 {
			next, over := after(out[n-1].Last)
			if over || slices.Compare(s.First, next) <= 0 {
				if slices.Compare(s.Last, out[n-1].Last) > 0 {
					out[n-1].Last = s.Last
				}
				continue
			}
		}
		out = append(out, s)
	}
	if len(out) > most {
		return nil, fmt.Errorf("%d separate entries are too many (at most %d): use ranges or larger subnets", len(out), most)
	}
	return out, nil
}

// after is the value that follows b, and whether there is none.
func after(b []byte) (next []byte, over bool) {
	next = slices.Clone(b)
	for i := len(next) - 1; i >= 0; i-- {
		next[i]++
		if next[i] != 0 {
			return next, false
		}
	}
	return next, true
}

// text is the span as nft writes it.
func (s Span) text(kind Kind) string {
	if kind == Ports {
		first, last := binary.BigEndian.Uint16(s.First), binary.BigEndian.Uint16(s.Last)
		if first == last {
			return strconv.Itoa(int(first))
		}
		return fmt.Sprintf("%d-%d", first, last)
	}
	first, _ := netip.AddrFromSlice(s.First)
	last, _ := netip.AddrFromSlice(s.Last)
	if first == last {
		return first.String()
	}
	for bits := range first.BitLen() {
		p := netip.PrefixFrom(first, bits)
		if p.Masked() != p {
			continue
		}
		if _, to, _ := single(p); slices.Equal(to, s.Last) {
			return p.String()
		}
	}
	return first.String() + "-" + last.String()
}

func single(p netip.Prefix) (first, last []byte, err error) {
	v4, v6, err := ParseSubnets([]string{p.String()})
	if err != nil {
		return nil, nil, err
	}
	s := append(v4, v6...)[0]
	return s.First, s.Last, nil
}

// clip keeps what strangers wrote short in messages.
func clip(s string) string {
	const long = 40
	if len(s) <= long {
		return s
	}
	return strings.ToValidUTF8(s[:long], "") + "…"
}
