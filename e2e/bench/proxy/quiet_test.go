package proxy

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// tries bounds how often a turn is taken in which the host took the processors away.
const tries = 5

// calmness is how often latency could be measured without the host in between.
type calmness struct {
	Turns     int `json:"turns"`
	Disturbed int `json:"disturbed"` // in each of their tries
}

var calmed calmness

// calmly takes a turn of latency, and once more if the host has had a processor
// meanwhile, which other guests wanted: a pause of milliseconds is all there is to see
// then. What was not kept of a turn is lost.
func calmly[T any](t *testing.T, turn func() T) T {
	t.Helper()
	calmed.Turns++
	for n := 1; ; n++ {
		before := stolen(t)
		got := turn()
		if stolen(t) == before {
			return got
		}
		if n == tries {
			calmed.Disturbed++
			return got
		}
	}
}

// stolen is the processors' time that the host has not given us, in ticks (proc(5)); 0
// where nobody says.
func stolen(t *testing.T) uint64 {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line) // cpu, user, nice, system, idle, iowait, irq, softirq, steal
	if len(fields) < 9 {
		return 0
	}
	n, err := strconv.ParseUint(fields[8], 10, 64)
	if err != nil {
		t.Fatalf("reading /proc/stat: %v", err)
	}
	return n
}

func printCalmness() {
	if calmed.Disturbed > 0 {
		fmt.Printf("\nthe host took the processors away in %d of %d turns of latency, however often they were taken: where they are many, latency says nothing\n",
			calmed.Disturbed, calmed.Turns)
	}
}
