package roll

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// TestScripts plays each script of testdata/roll.txtar. A script's lines are
//
//	limits processes=N bytes=N
//	at 10s                          the clock, from the script's start
//	hear service/instance [sent=SECONDS] [stale] [leaving] [skipped=N]
//	entries                         prints the roll
//	count                           prints the metric, without zeros
func TestScripts(t *testing.T) {
	ar, err := txtar.ParseFile("testdata/roll.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(ar.Files); i += 2 {
		script, want := ar.Files[i], ar.Files[i+1]
		if want.Name != "want" {
			t.Fatalf("%s is followed by %s, not by want", script.Name, want.Name)
		}
		t.Run(script.Name, func(t *testing.T) {
			if diff := cmp.Diff(string(want.Data), play(t, string(script.Data))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// start is when every script begins.
var start = time.Unix(1_000_000, 0)

func play(t *testing.T, script string) string {
	t.Helper()
	r, now := New(Limits{}), start
	var out strings.Builder
	for line := range strings.Lines(script) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		switch f[0] {
		case "limits":
			var l Limits
			for _, arg := range f[1:] {
				k, v, _ := strings.Cut(arg, "=")
				n := number(t, v)
				if k == "processes" {
					l.Processes = n
				} else {
					l.Bytes = n
				}
			}
			r = New(l)
		case "at":
			d, err := time.ParseDuration(f[1])
			if err != nil {
				t.Fatal(err)
			}
			now = start.Add(d)
			r.Forget(now)
		case "hear":
			if v := r.Hear(presence(t, f[1:], now), now); v != Taken {
				fmt.Fprintf(&out, "%s: %s\n", f[1], v)
			}
		case "entries":
			for _, e := range r.Entries(now).GetEntries() {
				p := e.GetPresence()
				ago := now.Sub(time.Unix(0, e.GetLastHeardNs()))
				fmt.Fprintf(&out, "%s/%s %s %s", p.GetService(), p.GetInstance(), bus.HealthOf(p, ago), ago)
				if p.GetSkippedTotal() > 0 || len(p.GetSkipped()) > 0 {
					fmt.Fprintf(&out, " skipped=%d/%d", len(p.GetSkipped()), p.GetSkippedTotal())
				}
				out.WriteByte('\n')
			}
			out.WriteString("--\n")
		case "count":
			counts := r.Count(now)
			for _, service := range append(services[:], other) {
				for _, s := range bus.Healths {
					if n := counts[Group{service, s}]; n > 0 {
						fmt.Fprintf(&out, "%s %s %d\n", service, s, n)
					}
				}
			}
			out.WriteString("--\n")
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	return out.String()
}

func presence(t *testing.T, f []string, now time.Time) *busv1.Presence {
	t.Helper()
	service, instance, _ := strings.Cut(f[0], "/")
	p := &busv1.Presence{Service: service, Instance: instance, SentAtNs: now.UnixNano()}
	for _, arg := range f[1:] {
		k, v, _ := strings.Cut(arg, "=")
		switch k {
		case "sent":
			p.SentAtNs = start.Add(time.Duration(number(t, v)) * time.Second).UnixNano()
		case "stale":
			p.Stale = true
		case "leaving":
			p.Leaving = true
		case "skipped":
			for i := range number(t, v) {
				p.Skipped = append(p.Skipped, &busv1.SkippedObject{Object: "pod/" + strconv.Itoa(i), Reason: strings.Repeat("r", 90)})
			}
		default:
			t.Fatalf("unknown argument %q", arg)
		}
	}
	return p
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestHearRefusesWhatHasNoName(t *testing.T) {
	long := strings.Repeat("x", maxName+1)
	for _, p := range []*busv1.Presence{
		nil,
		{},
		{Service: "a"},
		{Instance: "b"},
		{Service: long, Instance: "b"},
		{Service: "a", Instance: long},
		{Service: "a", Instance: "b", Host: long},
		{Service: "a", Instance: "b", Version: long},
		{Service: "a", Instance: "b", Cluster: long},
	} {
		r := New(Limits{})
		if got := r.Hear(p, start); got != Malformed || len(r.byName) != 0 {
			t.Errorf("Hear(%v) = %s with %d entries, want it refused", p, got, len(r.byName))
		}
	}
}

// TestRollIsBounded hears ten thousand random presences and holds the roll to
// its limits and its own books after each.
func TestRollIsBounded(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, seed))
	limits := Limits{Processes: 50, Bytes: 8 << 10}
	r, now := New(limits), start
	for i := range 10_000 {
		now = now.Add(time.Duration(random.IntN(2000)) * time.Millisecond)
		p := &busv1.Presence{
			Service: services[random.IntN(len(services))], Instance: strconv.Itoa(random.IntN(100)),
			SentAtNs: now.UnixNano() - int64(random.IntN(3))*int64(time.Second),
			Leaving:  random.IntN(20) == 0, Host: strings.Repeat("h", random.IntN(maxName)),
		}
		for range random.IntN(40) {
			p.Skipped = append(p.Skipped, &busv1.SkippedObject{Object: "o", Reason: strings.Repeat("r", random.IntN(300))})
		}
		r.Hear(p, now)
		if random.IntN(10) == 0 {
			r.Forget(now)
		}
		bytes := 0
		for n, e := range r.byName {
			bytes += proto.Size(e.presence)
			if n.service != e.presence.GetService() || n.instance != e.presence.GetInstance() {
				t.Fatalf("step %d: entry %v holds %v", i, n, e.presence)
			}
		}
		if bytes != r.bytes || bytes > limits.Bytes || len(r.byName) > limits.Processes {
			t.Fatalf("step %d: %d entries, %d bytes counted as %d, limits %+v", i, len(r.byName), bytes, r.bytes, limits)
		}
	}
}

func ExampleRoll() {
	r := New(Limits{})
	r.Hear(&busv1.Presence{Service: "watcher", Instance: "a1"}, start)
	r.Hear(&busv1.Presence{Service: "policy", Instance: "b2", Leaving: true}, start)
	for _, e := range r.Entries(start).GetEntries() {
		fmt.Println(e.GetPresence().GetService(), bus.HealthOf(e.GetPresence(), 0))
	}
	// Output:
	// watcher live
	// policy leaving
}
