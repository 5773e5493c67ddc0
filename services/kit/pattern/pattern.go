// Package pattern is for the regular expressions that routes and policies bring, whoever
// wrote them: a short one can take a second and hundreds of megabytes to compile, so what
// it would become is measured before. Who admits one and who obeys it measure alike.
package pattern

import (
	"fmt"
	"regexp"
	"regexp/syntax"
)

const (
	// Longest is in bytes; the CRDs allow 1,024 for a path and 4,096 for a header.
	Longest = 4096
	// Most bounds the steps once repetitions are written out: (a?b?){1000} is short.
	Most = 10_000
)

// What is wrong with an expression that is one.
var (
	ErrLong  = fmt.Errorf("it is too large, %d bytes are the most", Longest)
	ErrLarge = fmt.Errorf("it is too large, %d steps are the most once its repetitions are written out", Most)
)

// Steps estimates how many instructions an expression compiles to, without compiling it.
// The error tells what is wrong with it, or is ErrLong or ErrLarge; the latter's number
// is not the whole one.
func Steps(expr string) (int, error) {
	if len(expr) > Longest {
		return 0, ErrLong
	}
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return 0, err
	}
	n := steps(parsed)
	if n > Most {
		return n, ErrLarge
	}
	return n, nil
}

// Whole compiles an expression that must span a value. The error is that of Steps.
func Whole(expr string) (*regexp.Regexp, error) {
	_, err := Steps(expr)
	var re *regexp.Regexp
	if err == nil {
		re, err = regexp.Compile(`^(?:` + expr + `)$`)
	}
	if err != nil {
		return nil, fmt.Errorf("a bad pattern: %w", err)
	}
	return re, nil
}

// steps counts; the parser bounds the depth.
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
	return min(n, Most+1) // more need not be counted, and would overflow
}
