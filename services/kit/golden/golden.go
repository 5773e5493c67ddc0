// Package golden is for tests whose cases are files: a test reads what goes in and compares
// what comes out with what the file says. With -update, what comes out is written instead;
// whoever runs that reads the difference before committing it.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write what comes out into the golden files")

// Paths are the files that a pattern matches; none is a mistake.
func Paths(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files %s (%v)", pattern, err)
	}
	return paths
}

// Name names the test of a file.
func Name(path string) string {
	return strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(path), "testdata/"), filepath.Ext(path))
}

// Text wants a file to hold what came out.
func Text(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		write(t, path, []byte(got))
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run with -update", err)
	}
	differ(t, filepath.Base(path), string(want), got)
}

// File is a golden file with sections.
type File struct {
	*txtar.Archive
	Path, Name string
}

// Files reads the txtar files that a pattern matches; none is a mistake.
func Files(t *testing.T, pattern string) []*File {
	t.Helper()
	var out []*File
	for _, path := range Paths(t, pattern) {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, &File{archive, path, Name(path)})
	}
	return out
}

// Part is what is in a section; nil if there is none of that name.
func (f *File) Part(name string) []byte {
	if i := f.index(name); i >= 0 {
		return f.Files[i].Data
	}
	return nil
}

func (f *File) index(name string) int {
	return slices.IndexFunc(f.Files, func(s txtar.File) bool { return s.Name == name })
}

// Want wants the section of that name to hold what came out.
func (f *File) Want(t *testing.T, got string) {
	t.Helper()
	f.Is(t, "want", got)
}

// Is wants a section to hold what came out. With -update, a new one is the last.
func (f *File) Is(t *testing.T, name, got string) {
	t.Helper()
	i := f.index(name)
	switch {
	case !*update && i < 0:
		t.Errorf("%s has no section %q; run with -update", f.Path, name)
	case !*update:
		differ(t, name, string(f.Files[i].Data), got)
	case i < 0:
		f.Files = append(f.Files, txtar.File{Name: name, Data: []byte(got)})
		write(t, f.Path, txtar.Format(f.Archive))
	default:
		f.Files[i].Data = []byte(got)
		write(t, f.Path, txtar.Format(f.Archive))
	}
}

// Whole wants the file to hold these sections below its head.
func (f *File) Whole(t *testing.T, sections []txtar.File) {
	t.Helper()
	got := txtar.Format(&txtar.Archive{Comment: f.Comment, Files: sections})
	if *update {
		write(t, f.Path, got)
		return
	}
	differ(t, filepath.Base(f.Path), string(txtar.Format(f.Archive)), string(got))
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func differ(t *testing.T, what, want, got string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got; -update accepts it):\n%s", what, diff)
	}
}
