package redirect

import (
	"fmt"
	"strings"
)

// Rules are a whole plan: the content of the one table.
type Rules struct {
	Sets   []Set
	Chains []Chain
}

// Kind is what a set holds.
type Kind int

// The kinds of sets.
const (
	Ports Kind = iota
	IPv4
	IPv6
)

func (k Kind) String() string { return [...]string{"inet_service", "ipv4_addr", "ipv6_addr"}[k] }

// Set is a named list of spans, sorted and merged.
type Set struct {
	Name  string
	Kind  Kind
	Spans []Span
}

// Hook is where in the packet's way a chain is asked.
type Hook int

// The hooks.
const (
	Prerouting Hook = iota // what arrives from outside
	Output                 // what a process here sends
)

func (h Hook) String() string { return [...]string{"prerouting", "output"}[h] }

// Chain is asked once for each new connection, from its first rule on.
type Chain struct {
	Name  string
	Hook  Hook
	Rules []Rule
}

// Rule ends the walk through its chain for connections that match: it sends them
// to Port or, if that is 0, leaves them alone.
type Rule struct {
	Match []Match
	Port  int
	Why   string
}

// Match is one condition.
type Match struct {
	What What
	Set  string // for toPort, fromIPv4 and fromIPv6
	ID   uint32 // for byUser and byGroup
}

// What is looked at.
type What int

const (
	notIPv4 What = iota
	isTCP
	toPort
	fromIPv4
	fromIPv6
	byUser
	byGroup
	overLoopback
)

func (m Match) String() string {
	switch m.What {
	case notIPv4:
		return "meta nfproto != ipv4"
	case isTCP:
		return "meta l4proto tcp"
	case toPort:
		return "tcp dport @" + m.Set
	case fromIPv4:
		return "ip saddr @" + m.Set
	case fromIPv6:
		return "ip6 saddr @" + m.Set
	case byUser:
		return fmt.Sprintf("meta skuid %d", m.ID)
	case byGroup:
		return fmt.Sprintf("meta skgid %d", m.ID)
	default:
		return `oifname "lo"`
	}
}

// String is the rule as nft writes it.
func (r Rule) String() string {
	words := make([]string, 0, len(r.Match)+2)
	for _, m := range r.Match {
		words = append(words, m.String())
	}
	if r.Port != 0 {
		words = append(words, fmt.Sprintf("redirect to :%d", r.Port))
	} else {
		words = append(words, "return")
	}
	if r.Why != "" {
		words = append(words, fmt.Sprintf("comment %q", r.Why))
	}
	return strings.Join(words, " ")
}

// String is the table as `nft list table inet weft` prints it; `nft -f` reads it.
func (r Rules) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {\n", Table)
	for _, s := range r.Sets {
		elements := make([]string, 0, len(s.Spans))
		for _, span := range s.Spans {
			elements = append(elements, span.text(s.Kind))
		}
		fmt.Fprintf(&b, "\tset %s {\n\t\ttype %s\n\t\tflags interval\n\t\telements = { %s }\n\t}\n\n",
			s.Name, s.Kind, strings.Join(elements, ", "))
	}
	for i, c := range r.Chains {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "\tchain %s {\n\t\ttype nat hook %s priority %s; policy accept;\n", c.Name, c.Hook, priority[c.Hook])
		for _, rule := range c.Rules {
			fmt.Fprintf(&b, "\t\t%s\n", rule)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// priority is nft's name for -100 in each hook: it knows dstnat in prerouting only.
var priority = map[Hook]string{Prerouting: "dstnat", Output: "-100"}
