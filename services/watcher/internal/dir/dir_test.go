package dir

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// patience is how long a test waits for what must come; machines may be slow.
const patience = time.Minute

// rig is a running source over a directory of its own.
type rig struct {
	t   *testing.T
	dir string
	*Source
}

func start(t *testing.T, cfg Config) *rig {
	t.Helper()
	if len(cfg.Paths) == 0 {
		cfg.Paths = []string{t.TempDir()}
	}
	cfg.Log = slog.New(slog.DiscardHandler)
	r := &rig{t: t, dir: cfg.Paths[0], Source: New(cfg)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	select {
	case <-r.Synced():
	case <-time.After(patience):
		t.Fatal("not synced in time")
	}
	return r
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, filepath.FromSlash(name)) }

// write writes a file in one piece, as editors and kubectl do not.
func (r *rig) write(name, text string) {
	r.t.Helper()
	put(r.t, r.path(name), text)
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) remove(name string) {
	r.t.Helper()
	if err := os.RemoveAll(r.path(name)); err != nil {
		r.t.Fatal(err)
	}
}

// until waits for a condition, looking at every change.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			r.t.Fatalf("not in time: %s; objects %v, trouble %+v", what, r.names(), r.Trouble())
		}
	}
}

// names lists what exists.
func (r *rig) names() []string {
	var out []string
	for id := range r.now.Load().objects {
		out = append(out, id.String())
	}
	slices.Sort(out)
	return out
}

func (r *rig) has(want ...string) {
	r.t.Helper()
	r.until(fmt.Sprintf("objects %v", want), func() bool { return slices.Equal(r.names(), want) })
}

func (r *rig) skips(part string) {
	r.t.Helper()
	r.until("skipped: "+part, func() bool {
		for _, s := range r.Trouble().Skipped {
			if strings.Contains(s.Object+": "+s.Reason, part) {
				return true
			}
		}
		return false
	})
}

func (r *rig) skipsNothing() {
	r.t.Helper()
	r.until("nothing skipped", func() bool { return len(r.Trouble().Skipped) == 0 && !r.Trouble().Blind })
}

func ns(names ...string) string {
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", n)
	}
	return b.String()
}

func TestFilesComeChangeAndGo(t *testing.T) {
	r := start(t, Config{})
	r.has()
	r.write("a.yaml", ns("a"))
	r.has("Namespace a")
	r.write("sub/deep/b.yml", ns("b"))
	r.write("c.json", "{\"apiVersion\":\"v1\",\n\t\"kind\":\"Namespace\",\"metadata\":{\"name\":\"c\"}}")
	r.write("README.md", ns("no"))
	r.write(".hidden.yaml", ns("no"))
	r.has("Namespace a", "Namespace b", "Namespace c")
	r.write("a.yaml", ns("a", "d"))
	r.has("Namespace a", "Namespace b", "Namespace c", "Namespace d")
	r.write("a.yaml", ns("d"))
	r.has("Namespace b", "Namespace c", "Namespace d")
	r.remove("sub")
	r.remove("c.json")
	r.has("Namespace d")
	r.write("sub/deep/b.yml", ns("b"))
	r.has("Namespace b", "Namespace d")
	r.skipsNothing()
}

func TestAtomicRename(t *testing.T) {
	r := start(t, Config{})
	for i := range 5 {
		name := fmt.Sprintf("n%d", i)
		put(t, r.path(".tmp"), ns(name))
		if err := os.Rename(r.path(".tmp"), r.path("x.yaml")); err != nil {
			t.Fatal(err)
		}
		r.has("Namespace " + name)
	}
}

// TestConfigMap swaps the ..data link as the kubelet does for a mounted
// ConfigMap, several times (complaint B2: only the first swap was noticed).
func TestConfigMap(t *testing.T) {
	root := t.TempDir()
	swap := func(i int, text string) {
		version := fmt.Sprintf("..2026_%d", i)
		put(t, filepath.Join(root, version, "mesh.yaml"), text)
		if err := os.Symlink(version, filepath.Join(root, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(root, "..tmp"), filepath.Join(root, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	swap(0, ns("a"))
	if err := os.Symlink(filepath.Join("..data", "mesh.yaml"), filepath.Join(root, "mesh.yaml")); err != nil {
		t.Fatal(err)
	}
	r := start(t, Config{Paths: []string{root}})
	r.has("Namespace a")
	for i, name := range []string{"b", "c", "d"} {
		swap(i+1, ns(name))
		r.has("Namespace " + name)
	}
}

func TestBrokenFileKeepsItsObjects(t *testing.T) {
	r := start(t, Config{})
	r.write("a.yaml", ns("a", "b"))
	r.has("Namespace a", "Namespace b")
	r.write("a.yaml", ns("a")+"---\nkind: [broken\n")
	r.skips("a.yaml: document 3: ")
	r.has("Namespace a", "Namespace b")
	if r.Trouble().Blind {
		t.Error("blind, although the file was read before")
	}
	r.write("a.yaml", ns("b"))
	r.has("Namespace b")
	r.skipsNothing()
}

func TestBrokenFromTheStartIsBlind(t *testing.T) {
	root := t.TempDir()
	put(t, filepath.Join(root, "a.yaml"), ns("a")+"---\n\tx: [\n"+ns("b"))
	r := start(t, Config{Paths: []string{root}})
	r.skips("a.yaml: document 3: ")
	if !r.Trouble().Blind {
		t.Error("not blind, although nobody knows what the file was to hold")
	}
	r.has("Namespace a", "Namespace b")
	r.write("a.yaml", ns("a"))
	r.has("Namespace a")
	r.skipsNothing()
}

// TestTruncatedFile: a writer that is half way through leaves good YAML with
// fewer objects behind; nothing may be taken for deleted.
func TestTruncatedFile(t *testing.T) {
	// The writer below may be held up for a moment without being done.
	r := start(t, Config{Settle: 3 * time.Second})
	all := ns("a", "b", "c")
	r.write("a.yaml", all)
	r.has("Namespace a", "Namespace b", "Namespace c")
	r.Changes().Take(100)
	f, err := os.OpenFile(r.path("a.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // a test
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for line := range strings.Lines(all) {
		<-tick.C
		if _, err := f.WriteString(line); err != nil {
			t.Fatal(err)
		}
		if n := len(r.names()); n != 3 {
			t.Fatalf("%d objects while the file is being written, want 3", n)
		}
	}
	r.until("the whole file read", func() bool { return len(r.Trouble().Skipped) == 0 })
	if got := r.Changes().Take(100); len(got) != 0 {
		t.Errorf("changes %v, want none: the file is what it was", got)
	}
}

func TestEmptiedFile(t *testing.T) {
	r := start(t, Config{})
	r.write("a.yaml", ns("a"))
	r.has("Namespace a")
	r.write("a.yaml", "")
	r.has()
}

func TestFirstOfTwoFilesCounts(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	put(t, filepath.Join(one, "b.yaml"), "{apiVersion: v1, kind: Namespace, metadata: {name: a, annotations: {linkerd.io/from: b}}}")
	put(t, filepath.Join(one, "c.yaml"), "{apiVersion: v1, kind: Namespace, metadata: {name: a, annotations: {linkerd.io/from: c}}}")
	put(t, filepath.Join(two, "a.yaml"), "{apiVersion: v1, kind: Namespace, metadata: {name: a, annotations: {linkerd.io/from: two}}}")
	r := start(t, Config{Paths: []string{one, two}})
	from := func() string {
		obj := r.Get(shape.ID{Kind: shape.Namespace, Name: "a"})
		if obj == nil {
			return ""
		}
		return obj.GetAnnotations()["linkerd.io/from"]
	}
	r.until("b counts", func() bool { return from() == "b" })
	r.skips("Namespace a: is in " + filepath.Join(one, "b.yaml") + " and in " + filepath.Join(one, "c.yaml"))
	r.remove("b.yaml")
	r.until("c counts", func() bool { return from() == "c" })
	r.remove("c.yaml")
	r.until("two counts", func() bool { return from() == "two" })
	r.skipsNothing()
}

// TestLostRoot: a mount that goes away takes nothing along.
func TestLostRoot(t *testing.T) {
	base := t.TempDir()
	root := filepath.Join(base, "mesh")
	put(t, filepath.Join(root, "a.yaml"), ns("a"))
	r := start(t, Config{Paths: []string{root}, Rescan: 50 * time.Millisecond})
	r.has("Namespace a")
	if err := os.Rename(root, filepath.Join(base, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	r.skips(root + ": no such file or directory")
	r.has("Namespace a")
	put(t, filepath.Join(root, "b.yaml"), ns("b"))
	r.has("Namespace b")
	r.skipsNothing()
}

func TestRootThatIsNotThere(t *testing.T) {
	root := filepath.Join(t.TempDir(), "later")
	r := start(t, Config{Paths: []string{root}, Rescan: 50 * time.Millisecond})
	r.skips("no such file or directory")
	if !r.Trouble().Blind {
		t.Error("not blind without its only directory")
	}
	put(t, filepath.Join(root, "a.yaml"), ns("a"))
	r.has("Namespace a")
	r.skipsNothing()
}

func TestLoopOfLinks(t *testing.T) {
	root := t.TempDir()
	put(t, filepath.Join(root, "sub", "a.yaml"), ns("a"))
	if err := os.Symlink("..", filepath.Join(root, "sub", "up")); err != nil {
		t.Fatal(err)
	}
	r := start(t, Config{Paths: []string{root}})
	r.has("Namespace a")
	r.skipsNothing()
}

// TestRescan: without any event, changes are found all the same.
func TestRescan(t *testing.T) {
	root, outside := t.TempDir(), filepath.Join(t.TempDir(), "real.yaml")
	put(t, outside, ns("a"))
	if err := os.Symlink(outside, filepath.Join(root, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	r := start(t, Config{Paths: []string{root}, Rescan: 50 * time.Millisecond})
	r.has("Namespace a")
	put(t, outside, ns("b")) // no event in root
	r.has("Namespace b")
}

func TestListSeesOneNamespace(t *testing.T) {
	root := t.TempDir()
	put(t, filepath.Join(root, "a.yaml"), `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: b, namespace: one}}
- {apiVersion: v1, kind: Service, metadata: {name: a, namespace: one}}
- {apiVersion: v1, kind: Service, metadata: {name: a, namespace: two}}
- {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: one}}
- {apiVersion: v1, kind: Secret, metadata: {name: a, namespace: one}}
`)
	r := start(t, Config{Paths: []string{root}})
	var got []string
	r.List(shape.Service, "one", func(obj metav1.Object) { got = append(got, obj.GetName()) })
	if want := []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("List() = %v, want %v", got, want)
	}
}
