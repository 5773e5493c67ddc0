package conf

import (
	"cmp"
	"slices"
	"strings"
)

// readEnvironment sets fields from "NAME=value" pairs. An empty value counts
// as not set, because charts and shells make those by accident.
func readEnvironment(fields []field, groups []group, environ []string) []Problem {
	given := make(map[string]string, len(environ))
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok && strings.HasPrefix(name, Prefix) && value != "" {
			given[name] = value
		}
	}
	var problems []Problem
	known := make([]string, 0, len(fields))
	for _, f := range fields {
		known = append(known, f.env())
		text, ok := given[f.env()]
		delete(given, f.env())
		if !ok {
			continue
		}
		if wrong := f.set(text); wrong != "" {
			problems = append(problems, Problem{Flag: f.flag(), Env: f.env(), Text: wrong})
		}
	}
	return append(problems, strangers(given, groups, known)...)
}

// strangers reports variables that belong to a group we have but to none of
// its settings. Other WEFT_ variables may be meant for another process that
// shares the environment, and those that Kubernetes makes for a Service
// (WEFT_BUS_SERVICE_HOST, WEFT_BUS_PORT_4222_TCP, …) are nobody's setting.
func strangers(given map[string]string, groups []group, known []string) []Problem {
	var problems []Problem
	for name := range given {
		if serviceLink(name, given) {
			continue
		}
		for _, g := range groups {
			if len(g.path) > 0 && strings.HasPrefix(name, g.path.env()+"_") {
				problems = append(problems, Problem{Env: name, Text: "no setting has this name" + didYouMean(name, known)})
				break
			}
		}
	}
	slices.SortFunc(problems, func(a, b Problem) int { return cmp.Compare(a.Env, b.Env) })
	return problems
}

// serviceLink tells whether Kubernetes made the variable for a Service: then
// the same base name with _SERVICE_HOST is there too.
func serviceLink(name string, given map[string]string) bool {
	for _, mark := range []string{"_SERVICE_HOST", "_SERVICE_PORT", "_PORT"} {
		for i := strings.Index(name, mark); i >= 0; {
			if _, ok := given[name[:i]+"_SERVICE_HOST"]; ok {
				return true
			}
			next := strings.Index(name[i+1:], mark)
			if next < 0 {
				break
			}
			i += 1 + next
		}
	}
	return false
}

// asksHelp tells whether an argument before "--" asks for help.
func asksHelp(args []string) bool {
	for _, a := range args {
		switch a {
		case "--":
			return false
		case "-h", "--h", "-help", "--help":
			return true
		}
	}
	return false
}

// readFlags sets fields from -name=value, -name value and, for switches, -name;
// two dashes do as well as one. It goes on after a problem, to report them all.
func readFlags(fields []field, args []string) []Problem {
	byName := make(map[string]field, len(fields))
	known := make([]string, 0, len(fields))
	for _, f := range fields {
		byName[f.flag()] = f
		known = append(known, f.flag())
	}
	var problems []Problem
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		name, isFlag := strings.CutPrefix(arg, "-")
		if !isFlag || name == "" || name == "-" {
			problems = append(problems, Problem{Text: "argument " + quote(arg) + " belongs to no flag"})
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		f, ok := byName[name]
		if !ok {
			problems = append(problems, Problem{Flag: name, Text: "no flag has this name" + didYouMean(name, known)})
			// What follows an unknown flag is most likely its value.
			if !hasValue && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				args = args[1:]
			}
			continue
		}
		if !hasValue {
			switch {
			case f.isSwitch():
				value = "true"
			case len(args) == 0:
				problems = append(problems, Problem{Flag: f.flag(), Env: f.env(), Text: "a value must follow"})
				continue
			default:
				value, args = args[0], args[1:]
			}
		}
		if wrong := f.set(value); wrong != "" {
			problems = append(problems, Problem{Flag: f.flag(), Env: f.env(), Text: wrong})
		}
	}
	return problems
}
