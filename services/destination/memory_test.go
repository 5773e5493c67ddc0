package main

import (
	"runtime/debug"
	"testing"
)

func TestLimitGarbage(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for gogc, want := range map[string]int{"100": 100, "off": 100, "": gcPercent} {
		debug.SetGCPercent(100)
		limitGarbage(func(string) string { return gogc })
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("GOGC=%q: %d percent, want %d", gogc, got, want)
		}
	}
}
