package manifest

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Flag is a flag that stands for values of the charts, and where there is one,
// for the annotation that overrides them for one pod.
type Flag struct {
	Name, Short, Help string
	// Values are the paths of what it sets, as --set would name them.
	Values []string
	// Annotation is the full key; empty if no annotation does the same.
	Annotation string
	// Read checks the text and gives the value.
	Read func(string) (any, error)
	// Switch: the flag may be given without a value, and then means true.
	Switch bool
	// Instead names the flag that people should use; empty if this is it.
	Instead string
}

// Given is a flag that was given, and its value.
type Given struct {
	Flag
	Text  string
	Value any
}

// Flags are what Bind added to a command.
type Flags struct{ all []*given }

// BindFlags adds flags to fs.
func BindFlags(fs *pflag.FlagSet, flags []Flag) *Flags {
	out := &Flags{}
	for _, f := range flags {
		g := &given{Given: Given{Flag: f}}
		bound := fs.VarPF(g, f.Name, f.Short, f.Help)
		if f.Switch {
			bound.NoOptDefVal = "true"
		}
		if f.Instead != "" {
			bound.Deprecated = "use --" + f.Instead
		}
		out.all = append(out.all, g)
	}
	return out
}

// Given are the flags that were given, in the order in which they were bound.
func (f *Flags) Given() []Given {
	var out []Given
	for _, g := range f.all {
		if g.set {
			out = append(out, g.Given)
		}
	}
	return out
}

// given makes a Flag a flag's value.
type given struct {
	Given
	set bool
}

func (g *given) String() string { return g.Text }

func (g *given) Type() string {
	if g.Switch {
		return "bool"
	}
	return "value"
}

func (g *given) Set(text string) error {
	value, err := g.Read(text)
	if err != nil {
		return err
	}
	g.Text, g.Value, g.set = text, value, true
	return nil
}

// Text takes any text.
func Text(s string) (any, error) { return s, nil }

// Truth takes true and false.
func Truth(s string) (any, error) {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return nil, fmt.Errorf("%q is neither true nor false", s)
	}
	return b, nil
}

// Number takes whole numbers.
func Number(s string) (any, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is not a whole number", s)
	}
	return n, nil
}

// Count takes whole numbers that are not below zero.
func Count(s string) (any, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return nil, fmt.Errorf("%q is not a whole number from 0 on", s)
	}
	return int64(n), nil
}

// Port takes a port's number.
func Port(s string) (any, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return nil, fmt.Errorf("%q is not a port: they go from 1 to 65535", s)
	}
	return int64(n), nil
}

// Ports takes ports and ranges of them, with commas between.
func Ports(s string) (any, error) {
	for item := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(item), "-")
		from, err := Port(low)
		if err != nil {
			return nil, err
		}
		if isRange {
			to, err := Port(high)
			if err != nil {
				return nil, err
			}
			if to.(int64) < from.(int64) {
				return nil, fmt.Errorf("the range %q ends before it begins", item)
			}
		}
	}
	return s, nil
}

// Subnets takes networks as 10.0.0.0/8, with commas between.
func Subnets(s string) (any, error) {
	for item := range strings.SplitSeq(s, ",") {
		if _, err := netip.ParsePrefix(strings.TrimSpace(item)); err != nil {
			return nil, fmt.Errorf("%q is not a network (like 10.0.0.0/8)", item)
		}
	}
	return s, nil
}

// Quantity takes an amount of CPU or memory as Kubernetes writes it.
func Quantity(s string) (any, error) {
	if _, err := resource.ParseQuantity(s); err != nil {
		return nil, fmt.Errorf("%q is not an amount (like 100m, 0.5 or 64Mi)", s)
	}
	return s, nil
}

// OneOf takes one of the words.
func OneOf(words ...string) func(string) (any, error) {
	return func(s string) (any, error) {
		if !slices.Contains(words, s) {
			return nil, fmt.Errorf("%q is none of %s", s, strings.Join(words, ", "))
		}
		return s, nil
	}
}
