package golden_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/weftmesh/weft/services/kit/golden"
)

func TestFilesAsTheyAre(t *testing.T) {
	for _, f := range golden.Files(t, "testdata/*.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			in := string(f.Part("in"))
			f.Want(t, strings.ToUpper(in))
			f.Is(t, "length", fmt.Sprintf("%d\n", len(in)))
			f.Whole(t, f.Files)
			if f.Part("out") != nil {
				t.Error("there is a section that there is not")
			}
		})
	}
	for _, path := range golden.Paths(t, "testdata/*.txt") {
		golden.Text(t, path, "one two\n")
		if got := golden.Name(path); got != "text" {
			t.Errorf("%s is named %s", path, got)
		}
	}
}

// wrong is where the tests of another process find a file that is wrong.
const wrong = "GOLDEN_TEST_WRONG"

// TestWrong is run by TestUpdate, in a process that may fail.
func TestWrong(t *testing.T) {
	dir := os.Getenv(wrong)
	if dir == "" {
		t.Skip("run by TestUpdate")
	}
	for _, f := range golden.Files(t, filepath.Join(dir, "*.txtar")) {
		f.Want(t, "right\n")
		f.Is(t, "new", "new\n")
	}
	golden.Text(t, filepath.Join(dir, "new.txt"), "new\n")
}

func TestUpdate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "case.txtar")
	if err := os.WriteFile(path, []byte("-- want --\nwrong\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	again := func(args ...string) error {
		cmd := exec.CommandContext(t.Context(), os.Args[0], append(args, "-test.run=^TestWrong$")...)
		cmd.Env = append(os.Environ(), wrong+"="+dir)
		return cmd.Run()
	}
	if again() == nil {
		t.Error("a wrong file passed")
	}
	if err := again("-update"); err != nil {
		t.Errorf("an update failed: %v", err)
	}
	if err := again(); err != nil {
		t.Errorf("what was written is wrong: %v", err)
	}
	got, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text, want := string(txtar.Format(got)), "-- want --\nright\n-- new --\nnew\n"; text != want {
		t.Errorf("written %q, want %q", text, want)
	}
}
