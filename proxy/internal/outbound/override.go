package outbound

import (
	"strconv"
	"strings"
	"time"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/resolve"
)

// override lets the headers of the request change what the route says of tries and
// times (spec/proxy.md §6.4), and takes them off. What cannot be read is as if it
// were not there.
func (x *exchange) override() {
	f := &x.r.Fields
	retry, limits := x.rule.Retry, x.rule.Timeouts
	tries := false
	if statuses := statusesOf(f.Get("l5d-retry-http")); statuses != nil {
		retry.Statuses, tries = statuses, true
	}
	if codes := codesOf(f.Get("l5d-retry-grpc")); codes != nil {
		retry.GRPC, tries = codes, true
	}
	if n, err := strconv.ParseUint(f.Get("l5d-retry-limit"), 10, 16); err == nil {
		retry.Limit, tries = int(n), true
	}
	if d, ok := duration(f.Get("l5d-retry-timeout")); ok {
		retry.Timeout, tries = d, true
	}
	if tries && x.rule.Retry.Limit == 0 { // the route has no policy for tries
		if !f.Has("l5d-retry-limit") {
			retry.Limit = 1
		}
		retry.MaxBytes = minReplay
		retry.Backoff = resolve.Backoff{Min: 25 * time.Millisecond, Max: 250 * time.Millisecond, Jitter: 1}
	}
	if d, ok := duration(f.Get("l5d-response-timeout")); ok {
		limits.Response = d
	}
	if d, ok := duration(f.Get("l5d-request-timeout")); ok {
		limits.Request = d
	} else if d, ok := duration(f.Get("l5d-timeout")); ok {
		limits.Request = d
	}
	f.DelFunc(override)
	x.retry, x.limits = &retry, &limits
}

// override reports whether a header is one of those.
func override(name string) bool {
	switch len(name) {
	case 11:
		return message.Is(name, "l5d-timeout")
	case 14:
		return message.Is(name, "l5d-retry-http") || message.Is(name, "l5d-retry-grpc")
	case 15:
		return message.Is(name, "l5d-retry-limit")
	case 17:
		return message.Is(name, "l5d-retry-timeout")
	case 19:
		return message.Is(name, "l5d-request-timeout")
	case 20:
		return message.Is(name, "l5d-response-timeout")
	}
	return false
}

// statusesOf reads a list of statuses, ranges of them and their names.
func statusesOf(s string) []resolve.StatusRange {
	var out []resolve.StatusRange
	for word := range strings.SplitSeq(s, ",") {
		switch word = strings.TrimSpace(word); {
		case strings.EqualFold(word, "5xx"):
			out = append(out, resolve.StatusRange{Low: 500, High: 599})
		case strings.EqualFold(word, "gateway-error"):
			out = append(out, resolve.StatusRange{Low: 502, High: 504})
		default:
			low, high, isRange := strings.Cut(word, "-")
			if !isRange {
				high = low
			}
			a, errA := strconv.Atoi(strings.TrimSpace(low))
			b, errB := strconv.Atoi(strings.TrimSpace(high))
			if errA == nil && errB == nil && a >= 100 && b <= 599 && a <= b {
				out = append(out, resolve.StatusRange{Low: a, High: b})
			}
		}
	}
	return out
}

func codesOf(s string) []int {
	var out []int
	for word := range strings.SplitSeq(s, ",") {
		switch strings.ToLower(strings.TrimSpace(word)) {
		case "cancelled":
			out = append(out, 1)
		case "deadline-exceeded":
			out = append(out, 4)
		case "resource-exhausted":
			out = append(out, 8)
		case "internal":
			out = append(out, 13)
		case "unavailable":
			out = append(out, 14)
		}
	}
	return out
}

// duration reads a number with its unit, as the environment has it; 0 and less are
// no limit, as if it were not there.
func duration(s string) (time.Duration, bool) {
	s = strings.TrimSpace(s)
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	n, err := strconv.ParseInt(s[:i], 10, 64)
	unit, known := map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}[s[i:]]
	if err != nil || !known || n <= 0 || n > int64(1<<62/unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}
