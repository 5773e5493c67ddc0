package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/config"
)

// cores is how many threads may run Go code at once (spec/proxy.md §1.3). The
// default is one: a second costs half as much again per request. A bad value is
// ignored, as Linkerd ignores it, and is told.
func cores(environ []string, available int) (n int, odd []string) {
	number := func(name string, parse func(string) (float64, bool)) (float64, bool) {
		for _, e := range slices.Backward(environ) {
			value, ok := strings.CutPrefix(e, config.Prefix+name+"=")
			if !ok {
				continue
			}
			f, ok := parse(value)
			if !ok {
				odd = append(odd, fmt.Sprintf("%s%s: %q is ignored", config.Prefix, name, value))
			}
			return f, ok
		}
		return 0, false
	}
	available = max(available, 1)
	wanted, least := 1.0, 1.0
	if ratio, ok := number("CORES_MAX_RATIO", share); ok {
		wanted = math.Round(float64(available) * ratio)
	}
	if most, ok := number("CORES_MAX", whole); ok {
		wanted = most
	}
	if f, ok := number("CORES", whole); ok {
		least = f
	}
	if f, ok := number("CORES_MIN", whole); ok {
		least = f
	}
	return int(min(max(wanted, least, 1), float64(available))), odd
}

func whole(s string) (float64, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return float64(n), err == nil && n > 0
}

func share(s string) (float64, bool) {
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && f > 0 && f <= 1
}
