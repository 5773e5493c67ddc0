package route

import (
	"errors"

	"github.com/weftmesh/weft/services/kit/pattern"
)

// expression judges a regular expression without compiling it: one route may have
// thousands, and everybody's changes wait while they are looked at.
func expression(field, s string) error {
	switch _, err := pattern.Steps(s); {
	case errors.Is(err, pattern.ErrLong):
		return bad(field, "is longer than %d characters", pattern.Longest)
	case errors.Is(err, pattern.ErrLarge):
		return bad(field, "is too large: with its repetitions written out it has more than %d steps", pattern.Most)
	case err != nil:
		return bad(field, "%q is not a regular expression: %v", s, err)
	}
	return nil
}
