package proxy

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tries bounds how often a turn is taken in which the host took the processors away.
const tries = 5

// calmness is how often latency could be measured without the host in between.
type calmness struct {
	Turns     int `json:"turns"`
	Disturbed int `json:"disturbed"` // in each of their tries
}

var calmed calmness

// delays are how long answers took: in turns that the host left alone, and in others.
type delays struct{ calm, rough []time.Duration }

func (d *delays) add(of []time.Duration, calm bool) {
	if calm {
		d.calm = append(d.calm, of...)
	} else {
		d.rough = append(d.rough, of...)
	}
}

// counted are those that say something: of calm turns only, if all that are compared
// have any.
func (d *delays) counted(calm bool) []time.Duration {
	if calm {
		return d.calm
	}
	return slices.Concat(d.calm, d.rough)
}

// calmly takes a turn of latency, and once more if the host has had a processor
// meanwhile, which other guests wanted: a pause of milliseconds is all there is to see
// then. It reports whether it was calm in the end.
func calmly[T any](t *testing.T, turn func() T) (got T, calm bool) {
	t.Helper()
	calmed.Turns++
	for range tries {
		before := stolen(t)
		if got = turn(); stolen(t) == before {
			return got, true
		}
	}
	calmed.Disturbed++
	return got, false
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
		fmt.Printf("\nthe host took the processors away in %d of %d turns of latency, however often they were taken: these count only in rows where some proxy had no others\n",
			calmed.Disturbed, calmed.Turns)
	}
}
