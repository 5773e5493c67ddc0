package show_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"google.golang.org/protobuf/encoding/prototext"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/golden"
	"github.com/weftmesh/weft/tools/weft/internal/show"
)

// now is when every golden status is asked for: 1,000,000 s after the epoch,
// so that times in the files are easy to read.
var now = time.Unix(1_000_000, 0)

// TestStatusGolden shows testdata/*.txtar: a roll (text form of busv1.Roll), an
// optional source, and the table and JSON that they give.
func TestStatusGolden(t *testing.T) {
	for _, f := range golden.Files(t, "testdata/*.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			roll, source := &busv1.Roll{}, show.Heartbeat
			if err := prototext.Unmarshal(f.Part("roll"), roll); err != nil {
				t.Fatal(err)
			}
			if named := strings.TrimSpace(string(f.Part("source"))); named != "" {
				source = show.Source(named)
			}
			status := show.From(roll, "local", source, now)
			text, err := show.JSON(status)
			if err != nil {
				t.Fatal(err)
			}
			for name, got := range map[string]string{"table": show.Text(status), "json": text} {
				if f.Part(name) != nil { // a file may be about one of them alone
					f.Is(t, name, got)
				}
			}
		})
	}
}

// FuzzText shows names that nobody vetted: whatever a process says of itself,
// the table holds no control characters and ends each line once.
func FuzzText(f *testing.F) {
	f.Add("watcher", "\x1b[2J\x1b]0;owned\a", "v1\nfake  line", "\u202egnp.exe", int64(5), uint64(1))
	f.Add("", "", "", "\xff\xfe", int64(-1), uint64(0))
	f.Fuzz(func(t *testing.T, service, instance, version, reason string, ns int64, epoch uint64) {
		roll := &busv1.Roll{Entries: []*busv1.RollEntry{nil, {}, {LastHeardNs: ns, Presence: &busv1.Presence{
			Service: service, Instance: instance, Version: version, Host: reason, Epoch: epoch, Seq: epoch,
			StartedAtNs: ns, LagNs: ns, AgeNs: ns, Leader: true, Stale: ns%2 == 0, Ready: ns%3 == 0,
			Skipped: []*busv1.SkippedObject{{Object: instance, Reason: reason}},
			Links:   []*busv1.LinkState{{Cluster: instance, Problem: reason, Known: ns%2 == 0, AgeNs: ns, Epoch: epoch}},
		}}}}
		status := show.From(roll, service, show.Heartbeat, now)
		for _, r := range show.Text(status) {
			if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
				t.Fatalf("the table holds %U", r)
			}
		}
		if _, err := show.JSON(status); err != nil {
			t.Fatal(err)
		}
	})
}

func ExampleText() {
	roll := &busv1.Roll{Entries: []*busv1.RollEntry{{
		LastHeardNs: now.UnixNano(),
		Presence: &busv1.Presence{
			Service: "watcher", Instance: "a1", Version: "v1.0.0", Epoch: 7, Seq: 42, Leader: true, Ready: true,
			StartedAtNs: now.Add(-time.Hour).UnixNano(),
		},
	}}}
	fmt.Print(show.Text(show.From(roll, "local", show.Heartbeat, now)))
	// Output:
	// SERVICE    INSTANCE  VERSION  EPOCH/SEQ  LAG  STATE  AGE
	// watcher *  a1        v1.0.0   7/42       -    live   1h
	// * leads: it writes the log
}
