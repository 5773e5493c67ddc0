package state_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/watcher/internal/dir"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
	"github.com/weftmesh/weft/services/watcher/internal/state"
)

var update = flag.Bool("update", false, "write the golden files")

// world is a source in memory.
type world struct {
	objects map[shape.ID]metav1.Object
	derives bool
}

func newWorld() *world { return &world{objects: make(map[shape.ID]metav1.Object)} }

func (w *world) Get(id shape.ID) metav1.Object {
	if obj, ok := w.objects[id]; ok {
		return obj
	}
	return nil
}

func (w *world) List(kind shape.Kind, namespace string, each func(metav1.Object)) {
	var ids []shape.ID
	for id := range w.objects {
		if id.Kind == kind && id.Namespace == namespace {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b shape.ID) int { return strings.Compare(a.Name, b.Name) })
	for _, id := range ids {
		each(w.objects[id])
	}
}

func (w *world) Derives() bool { return w.derives }

var _ state.Objects = (*world)(nil)

// show writes changes, one a line. Unchanged parts of rows make the scripts
// long, so a row is shown whole.
func show(changes []bus.Change) string {
	var b strings.Builder
	for _, c := range changes {
		info, _ := bus.Info(c.Table)
		if c.Value == nil {
			fmt.Fprintf(&b, "- %s %s\n", info.Name, c.Key)
			continue
		}
		m := info.New()
		if err := proto.Unmarshal(c.Value, m); err != nil {
			fmt.Fprintf(&b, "%v\n", err)
		}
		raw, err := protojson.Marshal(m)
		if err != nil {
			fmt.Fprintf(&b, "%v\n", err)
		}
		var line bytes.Buffer
		if err := json.Compact(&line, raw); err != nil {
			fmt.Fprintf(&b, "%v\n", err)
		}
		fmt.Fprintf(&b, "+ %s %s %s\n", info.Name, c.Key, line.String())
	}
	return b.String()
}

// TestScripts runs testdata/*.txtar: each section is a step and is followed by
// one named "changes" with what the step changes in the log. Steps are
//
//	apply      objects put, as YAML
//	delete     "Kind namespace/name" lines
//	restart    a new state with the same objects, leading from what was published;
//	           "blind" in it means that the source can't see everything
//	vanish     objects gone, of which a blind source says nothing
//	see        the source sees everything again
//
// A comment that begins with "derive:" has endpoints derived.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts (%v)", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { script(t, file) })
	}
}

func script(t *testing.T, file string) {
	t.Helper()
	arc, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld()
	w.derives = strings.HasPrefix(string(arc.Comment), "derive:")
	s := state.New(w)
	log := make(map[string]bus.Change)
	publish := func(changes []bus.Change) {
		for _, c := range changes {
			if c.Value == nil {
				delete(log, fmt.Sprint(c.Table, c.Key))
				continue
			}
			log[fmt.Sprint(c.Table, c.Key)] = c
		}
		s.Published()
	}
	seen := time.Unix(1, 0)
	var out []txtar.File
	for i := 0; i < len(arc.Files); i++ {
		step := arc.Files[i]
		if step.Name == "changes" {
			t.Fatal("a step must come before its changes")
		}
		switch step.Name {
		case "apply":
			p := dir.Parse(step.Data)
			if p.Broken != nil || len(p.Strays) > 0 {
				t.Fatalf("%v %v", p.Broken, p.Strays)
			}
			for _, it := range p.Items {
				w.objects[it.ID] = it.Obj
			}
			for _, it := range p.Items {
				s.Apply(it.ID, seen)
			}
		case "delete":
			for line := range strings.Lines(string(step.Data)) {
				id := parseID(line)
				delete(w.objects, id)
				s.Apply(id, seen)
			}
		case "restart":
			s = state.New(w)
			for id := range w.objects {
				s.Apply(id, seen)
			}
			s.Settle()
			blind := strings.Contains(string(step.Data), "blind")
			s.Adopt(values(log), func(shape.Kind) bool { return blind })
		case "vanish":
			for line := range strings.Lines(string(step.Data)) {
				delete(w.objects, parseID(line))
			}
			out = append(out, step)
			continue
		case "see":
			s.See(seen, func(shape.Kind) bool { return false })
		default:
			t.Fatalf("unknown step %q", step.Name)
		}
		s.Settle()
		changes, _ := s.Changes()
		if step.Name == "restart" {
			changes = difference(log, s.Truth())
		}
		publish(changes)
		var news []string
		for _, p := range s.News() {
			news = append(news, "! "+p.Error()+"\n")
		}
		slices.Sort(news) // a restart has no order
		got := show(changes) + strings.Join(news, "")
		out = append(out, step, txtar.File{Name: "changes", Data: []byte(got)})
		var want []byte
		if i+1 < len(arc.Files) && arc.Files[i+1].Name == "changes" {
			i++
			want = arc.Files[i].Data
		}
		if diff := cmp.Diff(string(want), got); diff != "" && !*update {
			t.Errorf("step %d (%s): changes differ (-want +got); -update accepts them:\n%s", len(out)/2, step.Name, diff)
		}
		if diff := cmp.Diff(show(s.Truth()), show(sorted(values(log)))); diff != "" {
			t.Errorf("step %d (%s): the log is not the truth (-truth +log):\n%s", len(out)/2, step.Name, diff)
		}
	}
	if *update {
		arc.Files = out
		if err := os.WriteFile(file, txtar.Format(arc), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func parseID(line string) shape.ID {
	kind, name, _ := strings.Cut(strings.TrimSpace(line), " ")
	id := shape.ID{Kind: shape.Kind(kind), Name: name}
	if ns, n, found := strings.Cut(name, "/"); found {
		id.Namespace, id.Name = ns, n
	}
	return id
}

func values(log map[string]bus.Change) []bus.Change {
	var out []bus.Change
	for _, c := range log {
		out = append(out, c)
	}
	return out
}

// sorted is the order of Truth, by way of a state that does nothing else.
func sorted(changes []bus.Change) []bus.Change {
	rank := make(map[any]int)
	for i, t := range bus.Tables {
		rank[t.Table] = i
	}
	slices.SortFunc(changes, func(a, b bus.Change) int {
		if a.Table != b.Table {
			return rank[a.Table] - rank[b.Table]
		}
		return strings.Compare(a.Key, b.Key)
	})
	return changes
}

func difference(log map[string]bus.Change, truth []bus.Change) []bus.Change {
	var out []bus.Change
	in := make(map[string]bool)
	for _, c := range truth {
		k := fmt.Sprint(c.Table, c.Key)
		in[k] = true
		if old, ok := log[k]; !ok || !bytes.Equal(old.Value, c.Value) {
			out = append(out, c)
		}
	}
	for k, c := range log {
		if !in[k] {
			out = append(out, bus.Change{Table: c.Table, Key: c.Key})
		}
	}
	slices.SortFunc(out, func(a, b bus.Change) int { return strings.Compare(a.Key, b.Key) })
	return out
}
