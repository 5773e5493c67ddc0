package change

import (
	"errors"
	"strings"
)

// ErrNoPrefix means that a prefix was to be replaced in a request that no prefix
// has matched.
var ErrNoPrefix = errors.New("the route replaces a prefix that the request does not have")

// A Prefix is what a route has matched of a path, if it was a prefix: one that takes
// every path matches by "".
type Prefix struct {
	Text string
	Ok   bool
}

// replace puts with in place of the prefix.
func (p Prefix) replace(path, with string) (string, error) {
	rest, ok := CutPrefix(path, p.Text)
	if !ok || !p.Ok {
		return "", ErrNoPrefix
	}
	return strings.TrimSuffix(with, "/") + rest, nil
}

// CutPrefix takes a prefix off a path, segment by segment: what is left is empty
// or begins with a slash.
func CutPrefix(path, prefix string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path, strings.TrimSuffix(prefix, "/"))
	return rest, ok && (rest == "" || rest[0] == '/')
}

// isPath reports whether s may be a path or the beginning of one, perhaps with a query.
func isPath(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '#' }) < 0
}
