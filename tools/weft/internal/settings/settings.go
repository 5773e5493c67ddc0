// Package settings gives a command the same settings as the services have: one
// struct, one name each for flag and variable, checked once (see kit/conf).
package settings

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/services/kit/conf"
)

// Bind adds every setting of T to cmd's flags. The returned function, for when
// the command runs, gives defaults <- WEFT_… environment <- flags.
func Bind[T any](cmd *cobra.Command, defaults T) (func() (T, error), error) {
	list, err := conf.List(defaults)
	if err != nil {
		return nil, fmt.Errorf("binding flags: %w", err)
	}
	given := make([]*given, len(list))
	for i, s := range list {
		given[i] = newGiven(s)
		flag := cmd.Flags().VarPF(given[i], s.Flag, "", usage(s))
		flag.DefValue = s.Default
		if s.Switch {
			flag.NoOptDefVal = "true"
		}
	}
	return func() (T, error) {
		var args []string
		for _, g := range given {
			if g.set {
				args = append(args, "-"+g.flag+"="+g.text)
			}
		}
		return conf.LoadFrom(defaults, args, os.Environ())
	}, nil
}

// usage is a setting's line in help.
func usage(s conf.Setting) string {
	return strings.TrimSpace(s.Help + " (" + s.Env + ")")
}

// given is the text that was given for one flag; conf reads it later, so that
// all problems are told at once.
type given struct {
	flag, text, kind string
	set              bool
}

func newGiven(s conf.Setting) *given {
	g := &given{flag: s.Flag, kind: "text"}
	if s.Switch {
		g.kind = "bool"
	}
	return g
}

func (g *given) String() string { return g.text }
func (g *given) Type() string   { return g.kind }
func (g *given) Set(text string) error {
	g.text, g.set = text, true
	return nil
}
