package route

import "regexp/syntax"

const (
	// maxExpression bounds what a proxy must compile, in bytes; the CRDs allow 1,024
	// for a path and 4,096 for a header.
	maxExpression = 4096
	// maxSteps bounds the same once repetitions are written out: (a?b?){1000} is
	// short, and takes a second and 200 MB to compile if a and b are long.
	maxSteps = 10_000
)

// expression judges a regular expression without compiling it: one route may have
// thousands, and everybody's changes wait while they are looked at.
func expression(field, s string) error {
	if len(s) > maxExpression {
		return bad(field, "is longer than %d characters", maxExpression)
	}
	re, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return bad(field, "%q is not a regular expression: %v", s, err)
	}
	if steps(re) > maxSteps {
		return bad(field, "is too large: with its repetitions written out it has more than %d steps", maxSteps)
	}
	return nil
}

// Steps estimates how many instructions an expression compiles to; false if it is
// none, or one that no route may hold.
func Steps(s string) (n int, ok bool) {
	if len(s) > maxExpression {
		return 0, false
	}
	re, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return 0, false
	}
	n = steps(re)
	return n, n <= maxSteps
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
	return min(n, maxSteps+1) // more need not be counted, and would overflow
}
