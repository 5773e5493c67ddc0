package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
)

// TestAnyFaults runs random stories. WEFT_SEEDS is how many seeds are tried,
// WEFT_SEED the first. The story of a seed that fails is made as short as it
// still fails, and printed.
func TestAnyFaults(t *testing.T) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	first, n := envInt("WEFT_SEED", 1), envInt("WEFT_SEEDS", 20)
	for seed := first; seed < first+n; seed++ {
		story := invent(seed)
		wrong := tell(t, seed, story)
		if len(wrong) == 0 {
			continue
		}
		story, wrong = shrink(t, seed, story, wrong)
		t.Fatalf("WEFT_SEED=%d WEFT_SEEDS=1 fails:\n  %s\n%d steps:\n  %s", seed, strings.Join(wrong, "\n  "), len(story), strings.Join(words(story), "\n  "))
	}
}

func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// step is one thing that happens.
type step struct {
	what string
	n    int
	d    time.Duration
}

func (s step) String() string { return fmt.Sprintf("%s %d %v", s.what, s.n, s.d) }

func words(story []step) []string {
	out := make([]string, len(story))
	for i, s := range story {
		out[i] = s.String()
	}
	return out
}

// invent makes up a story.
func invent(seed int) []step {
	rng := rand.New(rand.NewPCG(uint64(seed), 11))
	often := []string{"add", "add", "add", "remove", "remove", "remove-pod-first", "allow", "protocol", "pass", "pass"}
	seldom := []string{"cut", "heal", "stall", "resume", "lead", "restart-destination", "restart-policy", "slow", "restart-watcher"}
	story := make([]step, 0, 60)
	for range 40 + rng.IntN(20) {
		from := often
		if rng.IntN(3) == 0 {
			from = seldom
		}
		story = append(story, step{from[rng.IntN(len(from))], rng.IntN(1000), time.Duration(rng.IntN(3000)) * time.Millisecond})
	}
	return story
}

// tell plays a story on a bad network, lets things calm down, and says what was wrong.
func tell(t *testing.T, seed int, story []step) (wrong []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := newWorld(ctx)
		defer func() {
			w.end(cancel)
			wrong = w.wrong
		}()
		var faulty atomic.Bool
		w.mem.Decide(dice(seed, &faulty))
		faulty.Store(true)
		for _, s := range story {
			w.do(s)
		}
		faulty.Store(false)
		w.calm()
		w.check()
	})
	return wrong
}

// dice gives each link its own, so that a message's fate doesn't depend on
// which of two goroutines sends first.
func dice(seed int, faulty *atomic.Bool) func(from, to bus.Transport, _ bus.Message) bustest.Fate {
	links := map[string]*rand.Rand{}
	return func(from, to bus.Transport, _ bus.Message) bustest.Fate {
		if !faulty.Load() {
			return bustest.Pass
		}
		link := from.Peer() + " " + to.Peer()
		if links[link] == nil {
			h := fnv.New64a()
			_, _ = h.Write([]byte(link))
			links[link] = rand.New(rand.NewPCG(uint64(seed), h.Sum64()))
		}
		switch x := links[link].IntN(100); {
		case x < 5:
			return bustest.Lost
		case x < 8:
			return bustest.Repeated
		case x < 12:
			return bustest.Held
		}
		return bustest.Pass
	}
}

// shrink leaves out steps as long as the story fails, within a bounded number
// of tries.
func shrink(t *testing.T, seed int, story []step, wrong []string) ([]step, []string) {
	t.Helper()
	tries := 0
	for size := len(story) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(story) && tries < 300; tries++ {
			shorter := append(append([]step{}, story[:at]...), story[at+size:]...)
			if now := tell(t, seed, shorter); len(now) > 0 {
				story, wrong = shorter, now
			} else {
				at += size
			}
		}
	}
	return story, wrong
}
