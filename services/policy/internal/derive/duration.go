package derive

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// units of a duration in an annotation. Source: spec/destination-policy.md §9.6.
var units = map[string]time.Duration{
	"ms": time.Millisecond,
	"s":  time.Second,
	"m":  time.Minute,
	"h":  time.Hour,
	"d":  24 * time.Hour,
}

// ParseDuration reads an integer and one unit of ms, s, m, h or d; a bare 0 is
// allowed. Fractions, negatives and compounds such as 1m30s are not.
func ParseDuration(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0, errors.New("duration is empty")
	}
	if len(s) > 32 {
		return 0, errors.New("duration is longer than 32 characters")
	}
	end := 0
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	if end == 0 {
		return 0, fmt.Errorf("duration %q does not begin with a whole number", s)
	}
	n, err := strconv.ParseInt(s[:end], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("duration %q is too large", s)
	}
	if s[end:] == "" && n == 0 {
		return 0, nil
	}
	unit, ok := units[s[end:]]
	if !ok {
		return 0, fmt.Errorf("duration %q needs a whole number and one unit of ms, s, m, h or d", s)
	}
	if n > math.MaxInt64/int64(unit) {
		return 0, fmt.Errorf("duration %q is too large", s)
	}
	return time.Duration(n) * unit, nil
}
