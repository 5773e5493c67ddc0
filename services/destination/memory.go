package main

import "runtime/debug"

// gcPercent bounds what the collector lets pile up, as GOGC does, whose default is
// 100. Of a replica with a hundred thousand streams 1.1 GB are in use, stacks
// included, and garbage may come to as much again in a storm of changes. This
// keeps it all below 2 GB, for a processor time of a stream's start that could not
// be told from before; with 50 it was a tenth more.
const gcPercent = 75

// limitGarbage tells the collector, unless a person has (GOGC).
func limitGarbage(getenv func(string) string) {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
