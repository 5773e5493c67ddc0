package main

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/config"
)

// cores is how many threads may run Go code at once (spec/proxy.md §1.3). The
// default is one: a second costs half as much again per request. A bad value is
// ignored, as Linkerd ignores it.
func cores(environ []string, available int) int {
	number := func(name string, least float64) (float64, bool) {
		for _, e := range slices.Backward(environ) {
			value, ok := strings.CutPrefix(e, config.Prefix+name+"=")
			if !ok {
				continue
			}
			f, err := strconv.ParseFloat(value, 64)
			return f, err == nil && f >= least && !math.IsInf(f, 0)
		}
		return 0, false
	}
	available = max(available, 1)
	n := 1.0
	if ratio, ok := number("CORES_MAX_RATIO", 0); ok && ratio > 0 && ratio <= 1 {
		n = math.Round(float64(available) * ratio)
	}
	if most, ok := number("CORES_MAX", 1); ok {
		n = most
	}
	least := 1.0
	if f, ok := number("CORES", 1); ok {
		least = f
	}
	if f, ok := number("CORES_MIN", 1); ok {
		least = f
	}
	return int(min(max(n, least, 1), float64(available)))
}
