package report

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/weftmesh/weft/services/kit/golden"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/check/engine"
)

// story is a run with every kind of answer.
func story() []engine.Result {
	problem := &say.Problem{What: "pod linkerd/web: status.phase is Pending", Why: "0/1 nodes\nhave room", Next: "kubectl describe"}
	return []engine.Result{
		{Category: "kubernetes-api", Check: engine.Check{Name: "can initialize the client", Anchor: "k8s-api"}},
		{Category: "linkerd-existence", Check: engine.Check{Name: "pods are ready", Anchor: "ready"}, Err: problem, Retrying: true},
		{Category: "linkerd-existence", Check: engine.Check{Name: "pods are ready", Anchor: "ready"}, Err: problem},
		{Category: "linkerd-existence", Check: engine.Check{Name: "no clock skew", Anchor: "skew", Warning: true}, Err: errors.New("node a\x1b[31m is off")},
		{Category: "linkerd-x", Check: engine.Check{Name: "all is there", Anchor: "https://example.org/#x"}, Err: errors.New("gone")},
	}
}

func TestGoldens(t *testing.T) {
	for _, tt := range []struct {
		name   string
		format Format
		colour bool
		limit  int // of the story
	}{
		{"table.txt", Table, false, 5},
		{"colour.txt", Table, true, 5},
		{"short.txt", Short, false, 5},
		{"story.json", JSON, false, 5},
		{"well.txt", Table, false, 1},
		{"well-short.txt", Short, false, 1},
		{"nothing.json", JSON, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, progress bytes.Buffer
			w := &Writer{Out: &out, Format: tt.format, Hints: "https://hints/#", Colour: tt.colour, Progress: &progress}
			var o engine.Outcome
			for _, r := range story()[:tt.limit] {
				w.Tell(r)
				if !r.Retrying {
					o.Add(r.Verdict())
				}
			}
			if err := w.End(o); err != nil {
				t.Error(err)
			}
			golden.Text(t, filepath.Join("testdata", tt.name), out.String())
			const waited = "… pods are ready: waiting: pod linkerd/web: status.phase is Pending: 0/1 nodes\r\x1b[K"
			if got := progress.String(); tt.limit == 5 && got != waited {
				t.Errorf("progress = %q, want %q", got, waited)
			}
		})
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestEndTellsOfAFullDisk(t *testing.T) {
	w := &Writer{Out: broken{}, Format: Table}
	w.Tell(story()[0])
	if err := w.End(engine.Outcome{Passed: 1}); err == nil {
		t.Error("End() = nil though nothing was written")
	}
}

func TestFormat(t *testing.T) {
	var f Format
	for _, good := range []string{"table", "json", "short"} {
		if err := f.Set(good); err != nil || f.String() != good {
			t.Errorf("Set(%q) = %v", good, err)
		}
	}
	if err := f.Set("wide"); err == nil {
		t.Error("Set(wide) = nil")
	}
}
