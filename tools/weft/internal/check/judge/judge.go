// Package judge says whether objects of a cluster are as a mesh needs them. It
// is pure: objects in, nil or what is wrong out. What is wrong always names the
// object, the field, and what to do next.
package judge

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weftmesh/weft/services/kit/say"
)

// mostFaults is how many of a kind are told; the rest is counted.
const mostFaults = 10

// faults collects what is wrong with several objects.
type faults struct {
	lines []string
	more  int
}

// add notes one: "Deployment linkerd/x", "spec.replicas", "is 1, not 3".
func (f *faults) add(object, field, wrong string) {
	if len(f.lines) == mostFaults {
		f.more++
		return
	}
	line := object + ": "
	if field != "" {
		line += field + " "
	}
	f.lines = append(f.lines, line+wrong)
}

// err is nil if nothing was added.
func (f *faults) err(next string) error {
	if len(f.lines) == 0 {
		return nil
	}
	lines := f.lines
	if f.more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", f.more))
	}
	return &say.Problem{What: strings.Join(lines, "\n"), Next: next}
}

// fault is a single one.
func fault(object, field, wrong, next string) error {
	var f faults
	f.add(object, field, wrong)
	return f.err(next)
}

// named is an object in words.
func named(kind, ns, name string) string {
	if ns == "" {
		return kind + " " + name
	}
	return kind + " " + ns + "/" + name
}

// Together makes one error of several, with what to do about the last.
func Together(all ...error) error {
	var lines []string
	var next string
	for _, err := range all {
		if err == nil {
			continue
		}
		p, ok := errors.AsType[*say.Problem](err)
		if !ok {
			return err
		}
		lines, next = append(lines, p.What), p.Next
	}
	if lines == nil {
		return nil
	}
	return &say.Problem{What: strings.Join(lines, "\n"), Next: next}
}
