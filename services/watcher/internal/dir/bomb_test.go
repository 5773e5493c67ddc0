package dir

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// TestAliasesOfALongText: a document of 1 MiB that would be 600 MiB of JSON.
func TestAliasesOfALongText(t *testing.T) {
	bomb := "kind: ConfigMap\na: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 600) + "]\n"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p := Parse([]byte(bomb))
	runtime.ReadMemStats(&after)
	if p.Broken == nil || !strings.Contains(p.Broken.Error(), "aliases") {
		t.Errorf("Parse() says %v, want aliases blamed", p.Broken)
	}
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 100 {
		t.Errorf("it took %d MiB to refuse", took)
	}
}

func TestAliasesThatPeopleWrite(t *testing.T) {
	p := Parse([]byte(`
apiVersion: v1
kind: Namespace
metadata:
  name: a
  labels: &all {x: "1", z: "2"}
  annotations: *all
`))
	if p.Broken != nil || len(p.Items) != 1 || p.Items[0].Obj.GetLabels()["z"] != "2" {
		t.Errorf("Parse() = %+v, want the namespace", p)
	}
}

// TestFIFO: one in the directory is passed over, and one that takes a file's
// place between the look and the reading does not stop the source.
func TestFIFO(t *testing.T) {
	r := start(t, Config{})
	r.write("a.yaml", ns("a"))
	fifo := r.path("pipe.yaml")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skipf("no FIFOs here: %v", err)
	}
	r.write("b.yaml", ns("b"))
	r.has("Namespace a", "Namespace b")
	if _, err := readFile(fifo); err == nil || !strings.Contains(err.Error(), "regular") {
		t.Errorf("readFile() of a FIFO = %v", err)
	}
}

// TestTimesOfChangeInTheFuture: an object that is missing from a file stays only
// as long as the file may be half written, whatever its clock says.
func TestTimesOfChangeInTheFuture(t *testing.T) {
	r := start(t, Config{})
	tomorrow := time.Now().Add(24 * time.Hour)
	write := func(text string) {
		temp := filepath.Join(t.TempDir(), "new")
		put(t, temp, text)
		if err := os.Chtimes(temp, tomorrow, tomorrow); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temp, r.path("a.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	write(ns("a") + "---\n" + ns("b"))
	r.has("Namespace a", "Namespace b")
	write(ns("a"))
	r.has("Namespace a")
}

// TestFilesFromTheFutureAreReadTwice: once more to make sure, and not for ever.
func TestFilesFromTheFutureAreReadTwice(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	put(t, a, ns("a"))
	now := time.Now()
	tomorrow := now.Add(24 * time.Hour)
	if err := os.Chtimes(a, tomorrow, tomorrow); err != nil {
		t.Fatal(err)
	}
	fs := files{byPath: make(map[string]*file)}
	read := 0
	for i := range 5 {
		was := fs.byPath[a]
		fs.update(look([]string{dir}), nil, now.Add(time.Duration(5*i)*time.Second))
		if fs.byPath[a] != was {
			read++
		}
	}
	if read != 2 {
		t.Errorf("read %d times, want 2", read)
	}
}

// TestAChangeReadsOneFile: the others in its directory are left alone, or a
// directory of thousands could not be changed often.
func TestAChangeReadsOneFile(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{"a", "b"} {
		put(t, filepath.Join(dir, name+".yaml"), ns(name))
		if err := os.Chtimes(filepath.Join(dir, name+".yaml"), old, old); err != nil {
			t.Fatal(err)
		}
	}
	fs := files{byPath: make(map[string]*file)}
	fs.update(look([]string{dir}), nil, time.Now())
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	wasA, wasB := fs.byPath[a], fs.byPath[b]
	fs.update(look([]string{dir}), map[string]bool{a: true}, time.Now())
	if fs.byPath[a] == wasA || fs.byPath[b] != wasB {
		t.Error("want the named file, and no other, to be read again")
	}
	fs.update(look([]string{dir}), map[string]bool{dir: true}, time.Now())
	if fs.byPath[b] == wasB {
		t.Error("want all files of a named directory to be read again")
	}
	if got := fs.merge(look([]string{dir})).objects; got[shape.ID{Kind: shape.Namespace, Name: "a"}] == nil || len(got) != 2 {
		t.Errorf("objects %v", got)
	}
}
