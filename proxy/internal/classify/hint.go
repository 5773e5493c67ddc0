package classify

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Fields are the fields of an answer.
type Fields interface{ Get(name string) string }

// Penalized reports whether an answer counts against its server beyond the time
// it took: it failed, or it asks for less (spec/proxy.md §7.4).
func Penalized(status int, grpc string) bool {
	switch grpc {
	case "2", "4", "8", "13", "14", "15":
		return true
	}
	return status == http.StatusTooManyRequests || status >= 500
}

// Hint is how long the server asks to be left alone: by Retry-After of a 429 or
// 503, in seconds or as a date, or by gRPC's pushback in milliseconds. A date that
// has passed is 0. It is false if the server does not say, or not in a way that
// can be read.
func Hint(status int, f Fields, now time.Time) (time.Duration, bool) {
	if s := f.Get("grpc-retry-pushback-ms"); s != "" {
		n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32)
		return time.Duration(n) * time.Millisecond, err == nil && n >= 0
	}
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		return 0, false
	}
	s := strings.TrimSpace(f.Get("retry-after"))
	if s == "" {
		return 0, false
	}
	if digits(s) {
		const most = 1<<33 - 1 // seconds, which a Duration can hold
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n > most {
			n = most
		}
		return time.Duration(n) * time.Second, true
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0, false
	}
	return max(at.Sub(now), 0), true
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
