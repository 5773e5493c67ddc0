// Package conf fills a service's settings: defaults, then the WEFT_…
// environment, then flags, the later winning. A setting is a struct field and
// has one name everywhere: field Bus.ClusterDomain is flag
// -bus.cluster-domain and variable WEFT_BUS_CLUSTER_DOMAIN.
//
// Load once, at the start. It checks everything and returns every problem it
// found in one *Error; a program given nonsense must not run (exit 64).
package conf

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
)

// Prefix begins the name of every environment variable that is ours.
const Prefix = "WEFT_"

// Checker is a settings struct that can judge itself. Load asks the struct it
// fills and every struct nested in it. Several errors may be joined. An error
// that also has a method Field() string naming one of the struct's fields is
// reported under that field's flag.
type Checker interface{ Check() error }

// Load fills a copy of defaults from the process's environment and arguments.
func Load[T any](defaults T) (T, error) {
	return LoadFrom(defaults, os.Args[1:], os.Environ())
}

// LoadFrom is Load with the arguments (without the program's name) and the
// environment ("NAME=value") given by the caller.
func LoadFrom[T any](defaults T, args, environ []string) (T, error) {
	cfg := defaults
	fields, structs, err := collect(reflect.ValueOf(&cfg).Elem())
	if err != nil {
		return defaults, err
	}
	if asksHelp(args) {
		return defaults, &Help{Text: help(fields)}
	}
	var problems []Problem
	problems = append(problems, readEnvironment(fields, structs, environ)...)
	problems = append(problems, readFlags(fields, args)...)
	problems = append(problems, check(structs)...)
	if len(problems) > 0 {
		return defaults, &Error{Problems: problems}
	}
	return cfg, nil
}

// Error lists everything that is wrong with the settings.
type Error struct{ Problems []Problem }

// Problem is one wrong setting. Flag and Env are empty where no single setting
// is to blame.
type Problem struct{ Flag, Env, Text string }

// String names the setting and says what is wrong with it.
func (p Problem) String() string {
	switch {
	case p.Flag != "" && p.Env != "":
		return fmt.Sprintf("-%s (%s): %s", p.Flag, p.Env, p.Text)
	case p.Flag != "":
		return fmt.Sprintf("-%s: %s", p.Flag, p.Text)
	case p.Env != "":
		return fmt.Sprintf("%s: %s", p.Env, p.Text)
	}
	return p.Text
}

// Error lists the problems, one on each line.
func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	lines := make([]string, 0, len(e.Problems)+1)
	lines = append(lines, fmt.Sprintf("%d settings are wrong", len(e.Problems)))
	for _, p := range e.Problems {
		lines = append(lines, "  "+p.String())
	}
	return strings.Join(lines, "\n")
}

// Help is returned instead of settings when an argument asks for them to be
// explained. It is no failure: print Text and exit 0.
type Help struct{ Text string }

// Error says that help was asked for.
func (*Help) Error() string { return "help requested" }

// Bad is an error for a Check method: it blames one field of the checked struct.
func Bad(field, format string, args ...any) error {
	return &badField{field: field, err: fmt.Errorf(format, args...)}
}

type badField struct {
	field string
	err   error
}

func (b *badField) Error() string { return b.err.Error() }
func (b *badField) Unwrap() error { return b.err }
func (b *badField) Field() string { return b.field }

// check asks every struct to judge itself, outermost first.
func check(structs []group) []Problem {
	var problems []Problem
	for _, g := range structs {
		c, ok := reflect.TypeAssert[Checker](g.value.Addr())
		if !ok {
			continue
		}
		for _, err := range flatten(c.Check()) {
			problems = append(problems, g.blame(err))
		}
	}
	return slices.Compact(problems)
}

// blame turns what a Check returned into a problem with names a person can use.
func (g group) blame(err error) Problem {
	var named interface{ Field() string }
	if errors.As(err, &named) {
		path := g.path.child(named.Field())
		return Problem{Flag: path.flag(), Env: path.env(), Text: err.Error()}
	}
	if len(g.path) == 0 {
		return Problem{Text: err.Error()}
	}
	return Problem{Flag: g.path.flag() + ".*", Env: g.path.env() + "_*", Text: err.Error()}
}

// flatten splits joined errors into single ones.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	// Only what was joined here and now: an error that wraps a joined one is one sentence.
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, flatten(e)...)
	}
	return all
}
