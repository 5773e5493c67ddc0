package history

import (
	"fmt"
	"time"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// layouts are how a moment may be written, in local time where no zone is given.
var layouts = []string{time.RFC3339Nano, "2006-01-02 15:04:05.999", "2006-01-02T15:04:05.999", "2006-01-02 15:04", "2006-01-02"}

// clocks are moments of the last 24 hours.
var clocks = []string{"15:04:05.999", "15:04"}

// Moment reads a time as a person writes it: 10m (ago), 14:03, 14:03:11,
// 2026-11-30 14:03, or RFC 3339.
func Moment(flag, text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, layout := range clocks {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			at := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), now.Location())
			if at.After(now) {
				at = at.AddDate(0, 0, -1)
			}
			return at, nil
		}
	}
	return time.Time{}, &say.Problem{
		Code: usage.Exit, What: fmt.Sprintf("--%s %q is not a time", flag, text),
		Next: "write how long ago (90s, 10m, 2h), a time of day (14:03, 14:03:11), or a date and time (2026-11-30 14:03:11, 2026-11-30T14:03:11Z)",
	}
}
