// Package pattern compiles the regular expressions that routes and policies
// bring, whoever wrote them: a short one can take a second and hundreds of
// megabytes, so what it would become is measured before. It is pure.
package pattern

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
)

const (
	// longest is in bytes; the CRDs allow 1,024 for a path and 4,096 for a header.
	longest = 4096
	// most bounds the steps once repetitions are written out: (a?b?){1000} is short.
	most = 10_000
)

var errLarge = errors.New("it is too large")

// Whole compiles an expression that must span a value. The error tells what is
// wrong with it, or that it is longer than 4,096 bytes or has more than 10,000
// steps with its repetitions written out.
func Whole(expr string) (*regexp.Regexp, error) {
	if len(expr) > longest {
		return nil, fmt.Errorf("a pattern of %d bytes: %w, %d are the most", len(expr), errLarge, longest)
	}
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("a bad pattern: %w", err)
	}
	if steps(parsed) > most {
		return nil, fmt.Errorf("a pattern of more than %d steps: %w", most, errLarge)
	}
	re, err := regexp.Compile(`^(?:` + expr + `)$`)
	if err != nil {
		return nil, fmt.Errorf("a bad pattern: %w", err)
	}
	return re, nil
}

// steps estimates how many instructions an expression compiles to. The parser
// bounds its depth.
func steps(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	if re.Op == syntax.OpCharClass {
		n = 1 // however many characters
	}
	for _, sub := range re.Sub {
		n += steps(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min+1, re.Max) // Max is -1 where there is none
	}
	return min(n, most+1) // more need not be counted, and would overflow
}
