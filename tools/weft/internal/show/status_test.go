package show_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/prototext"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/tools/weft/internal/show"
)

var update = flag.Bool("update", false, "write what is shown into the golden files")

// now is when every golden status is asked for: 1,000,000 s after the epoch,
// so that times in the files are easy to read.
var now = time.Unix(1_000_000, 0)

// TestStatusGolden shows testdata/*.txtar: a roll (text form of busv1.Roll), an
// optional source, and the table and JSON that they give.
func TestStatusGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			roll, source := &busv1.Roll{}, show.Heartbeat
			golden := map[string]string{}
			for _, f := range ar.Files {
				switch f.Name {
				case "roll":
					if err := prototext.Unmarshal(f.Data, roll); err != nil {
						t.Fatal(err)
					}
				case "source":
					source = show.Source(strings.TrimSpace(string(f.Data)))
				default:
					golden[f.Name] = string(f.Data)
				}
			}
			status := show.From(roll, "local", source, now)
			text, err := show.JSON(status)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{"table": show.Text(status), "json": text}
			if *update {
				rewrite(t, file, ar, got)
				return
			}
			for _, name := range []string{"table", "json"} {
				if want, ok := golden[name]; ok {
					if diff := cmp.Diff(want, got[name]); diff != "" {
						t.Errorf("%s (-want +got):\n%s", name, diff)
					}
				}
			}
		})
	}
}

// rewrite puts got into the golden parts that the file has.
func rewrite(t *testing.T, file string, ar *txtar.Archive, got map[string]string) {
	t.Helper()
	for i, f := range ar.Files {
		if text, ok := got[f.Name]; ok {
			ar.Files[i].Data = []byte(text)
		}
	}
	if err := os.WriteFile(file, txtar.Format(ar), 0o600); err != nil {
		t.Fatal(err)
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
