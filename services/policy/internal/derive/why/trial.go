package why

import (
	"fmt"
	"regexp"

	"github.com/weftmesh/weft/services/kit/pattern"
)

// What it costs to try expressions, in steps of an expression times bytes that it
// is tried on: matching is linear in both. A unit is ten nanoseconds at most, so an
// answer takes a second at most, however many routes there are and whatever they
// hold.
const (
	maxWork = 100_000_000
	// compiling is what compiling a step costs, in bytes.
	compiling = 300
	// starting is what the smallest expression costs, in steps times bytes.
	starting = 4000
)

// tooMuch tells what to do instead.
var tooMuch = fmt.Sprintf("the regular expressions of the routes would take too long to try (more than %d steps): "+
	"ask about a shorter path or shorter headers, or use exact matches and prefixes", maxWork)

// trial is a request that routes are tried on.
type trial struct {
	*Request
	left int64 // of maxWork; below 0 nothing fits any more, and no answer counts
}

// whole says whether an expression spans all of a value; a broken one never does.
func (r *trial) whole(expression, value string) bool {
	steps, err := pattern.Steps(expression)
	r.left -= starting + int64(steps)*int64(compiling+len(value))
	if err != nil || r.left < 0 {
		return false
	}
	re, err := regexp.Compile(`\A(?:` + expression + `)\z`)
	return err == nil && re.MatchString(value)
}
