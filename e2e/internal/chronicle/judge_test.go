package chronicle

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// script makes events of lines "what who|topic ...", one a second.
//
//	wrote topic a b    opened who life topic    told who a b    absent who topic    ended who    settled
func script(t *testing.T, text string) []Event {
	t.Helper()
	var out []Event
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		e := Event{At: time.Duration(len(out)+1) * time.Second}
		switch f[0] {
		case "wrote":
			e.What, e.Topic, e.Items = Wrote, f[1], f[2:]
		case "opened":
			e.What, e.Who, e.Life, e.Topic = Opened, f[1], f[2], f[3]
		case "told":
			e.What, e.Who, e.Items = Told, f[1], f[2:]
		case "absent":
			e.What, e.Who, e.Topic = Absent, f[1], f[2]
		case "ended":
			e.What, e.Who = Ended, f[1]
		case "settled":
			e.What = Settled
		default:
			t.Fatalf("no such event: %s", line)
		}
		out = append(out, e)
	}
	return out
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		want         []string // verdicts
	}{
		{"nothing", "", nil},
		{"as it should be", `
			wrote web a b
			opened c r.1 web
			told c a b
			wrote web b d
			told c a b d
			told c b d
			settled`, nil},
		{"changes are merged", `
			wrote web a
			opened c r.1 web
			told c a
			wrote web b
			wrote web d
			told c a d
			told c d`, nil},
		{"a stale replica answers with what it has", `
			wrote web a
			wrote web b
			opened c r.1 web
			told c a
			told c b`, nil},
		{"a later life may be behind", `
			wrote web a
			wrote web b
			opened c r.1 web
			told c b
			ended c
			opened c r.2 web
			told c a
			told c b`, nil},
		{"back in one stream", `
			wrote web a
			wrote web b
			opened c r.1 web
			told c a
			told c b
			told c a b
			told c b`, []string{"forward only"}},
		{"back in a new stream of one life", `
			wrote web a
			wrote web b
			opened c r.1 web
			told c b
			ended c
			opened c r.1 web
			told c a
			told c b`, []string{"forward only"}},
		{"a name of nobody's", `
			wrote web a
			opened c r.1 web
			told c a x
			told c a`, []string{"invented"}},
		{"a name before its time", `
			wrote web a
			opened c r.1 web
			told c a b
			wrote web a b`, []string{"invented"}},
		{"who is denied is let in", `
			wrote web a
			opened c r.1 web
			told c mallory
			told c a`, []string{"never open"}},
		{"a ghost after all is settled", `
			wrote web a
			wrote web b
			opened c r.1 web
			opened d r.2 web
			told c b
			told d b
			settled
			ended d
			opened d r.3 web
			told d a
			told d b`, []string{"no ghosts"}},
		{"empty although it never was", `
			wrote steady s
			wrote steady s a
			opened c r.1 steady
			told c
			told c s a`, []string{"unknown is not empty"}},
		{"a part of what was there all the time", `
			wrote steady s a
			opened c r.1 steady
			told c a
			told c s a`, []string{"unknown is not empty"}},
		{"said to be absent before it was there, and after", `
			opened c r.1 web
			absent c web
			ended c
			wrote web a
			opened c r.1 web
			absent c web
			ended c
			opened c r.1 web
			told c a`, []string{"unknown is not empty"}},
		{"told of nothing new", `
			wrote calm a
			opened c r.1 calm
			told c a
			told c a`, []string{"least messages"}},
		{"told too often", `
			wrote web a
			opened c r.1 web
			told c a
			told c a
			told c a
			told c a
			ended c
			opened c r.1 web
			told c a`, []string{"least messages"}},
		{"old in the end", `
			wrote web a
			opened c r.1 web
			told c a
			wrote web b`, []string{"agree"}},
		{"silent in the end", `
			wrote web a
			opened c r.1 web`, []string{"agree"}},
		{"silent about what is empty", `
			wrote web a
			wrote web
			opened c r.1 web`, nil},
		{"gone in the end", `
			wrote web a
			opened c r.1 web
			told c a
			ended c`, []string{"agree"}},
	} {
		rules := Rules{Denied: []string{"mallory"}, Always: map[string][]string{"steady": {"s"}}, Calm: []string{"calm"}}
		events := script(t, tc.script)
		var got []string
		for _, w := range Judge(events, rules) {
			got = append(got, w.Verdict)
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s (-want +got)\n%s\n%v", tc.name, d, Judge(events, rules))
		}
		if _, agreed := Agreed(events); agreed == (len(got) == 1 && got[0] == "agree") {
			t.Errorf("%s: Agreed() = %v", tc.name, agreed)
		}
	}
}

func TestTranscript(t *testing.T) {
	events := script(t, "wrote web a\nwrote other x\nopened c r.1 web\ntold c a\nended c\nsettled")
	events[3].Topic = "web"
	events = append(events, Event{At: 9 * time.Second, What: Fault, Note: "r.1 is killed"})
	want := "    3.000 c asks r.1 for web\n    4.000 c holds web {a}\n    6.000 -- settled --\n    9.000 -- r.1 is killed"
	if d := cmp.Diff(want, Transcript(events, "web", 4)); d != "" {
		t.Errorf("Transcript() (-want +got)\n%s", d)
	}
}

func TestLogKeepsOrder(t *testing.T) {
	l := New()
	l.Add(Event{What: Wrote, Topic: "web", Items: []string{"b", "a"}})
	l.Add(Event{What: Settled})
	got := l.Events()
	if len(got) != 2 || got[0].Items[0] != "a" || got[1].At < got[0].At {
		t.Errorf("Events() = %v", got)
	}
}
