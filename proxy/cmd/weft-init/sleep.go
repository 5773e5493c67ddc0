package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weftmesh/weft/proxy/internal/redirect"
	"github.com/weftmesh/weft/services/kit/say"
)

// sleep waits as long as its arguments add up to, as sleep(1) does: seconds,
// with an optional s, m, h or d. Ended by a signal, it exits 143.
func sleep(ctx context.Context, c call) int {
	total, err := sum(c.args)
	if err != nil {
		return finish(c, "sleep", err, redirect.ExitUsage)
	}
	timer := time.NewTimer(total)
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0
	case <-ctx.Done():
		return 143
	}
}

func sum(args []string) (time.Duration, error) {
	// Longer than any pod lives; it keeps the sum within a Duration.
	const longest = 365 * 24 * time.Hour
	if len(args) == 0 {
		return 0, &say.Problem{Code: redirect.ExitUsage, What: "sleep needs to know how long", Next: "sleep 5"}
	}
	var total time.Duration
	for _, arg := range args {
		number, unit := strings.TrimRight(arg, "smhd"), time.Second
		switch suffix := arg[len(number):]; suffix {
		case "", "s":
		case "m":
			unit = time.Minute
		case "h":
			unit = time.Hour
		case "d":
			unit = 24 * time.Hour
		default:
			number = ""
		}
		f, err := strconv.ParseFloat(number, 64)
		if err != nil || !(f >= 0) {
			return 0, &say.Problem{
				Code: redirect.ExitUsage, What: fmt.Sprintf("sleep does not understand %q", arg), Next: "sleep 5, or 0.5s, 2m, 1h",
			}
		}
		if f > float64(longest)/float64(unit) {
			return longest, nil
		}
		total += time.Duration(f * float64(unit))
		total = min(total, longest)
	}
	return total, nil
}
