package repolint

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// target is a target of the Makefile that a person can name; files are none.
type target struct {
	name, sentence string
	phony          bool
}

var (
	targetLine = regexp.MustCompile(`(?m)^([\w-]+(?: +[\w-]+)*) *:((?:[^=\n].*)?)$`)
	phonyLine  = regexp.MustCompile(`(?m)^\.PHONY *:(.*)$`)
	// listable is what the help target's own pattern finds.
	listable = regexp.MustCompile(`^[a-z0-9-]+$`)
)

func (r *repo) makeTargets() []target {
	f, _ := r.file("Makefile")
	text := strings.ReplaceAll(string(f.data), "\\\n", " ")
	var phony []string
	for _, m := range phonyLine.FindAllStringSubmatch(text, -1) {
		phony = append(phony, strings.Fields(m[1])...)
	}
	var out []target
	for _, m := range targetLine.FindAllStringSubmatch(text, -1) {
		_, sentence, _ := strings.Cut(m[2], "## ")
		for name := range strings.FieldsSeq(m[1]) {
			out = append(out, target{name, strings.TrimSpace(sentence), slices.Contains(phony, name)})
		}
	}
	return out
}

func makeTargets(r *repo) (int, []problem) {
	var wrong []problem
	targets := r.makeTargets()
	for _, t := range targets {
		add := func(what, mend string) {
			wrong = append(wrong, problem{"Makefile", "target " + t.name + " " + what, mend})
		}
		if !t.phony {
			add("is not in .PHONY", "add it: a file of that name would switch it off")
		}
		if !listable.MatchString(t.name) {
			add("is not found by make help", "name it with lower-case letters, digits and hyphens")
		}
		switch {
		case t.sentence == "":
			add("is not in make help", "write ## and what it does after its prerequisites")
		case strings.Contains(t.sentence, ". ") || strings.HasSuffix(t.sentence, ".") || !strings.Contains(t.sentence, " "):
			add("is not told in one sentence", "say in one what it does, without a stop")
		}
	}
	return len(targets), wrong
}

// TestMakeHelp runs make help: it lists what the rule above has read.
func TestMakeHelp(t *testing.T) {
	r := loadHere(t)
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed: ", err)
	}
	cmd := exec.CommandContext(t.Context(), "make", "--silent", "--no-print-directory", "help")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "MAKE") || strings.HasPrefix(e, "MFLAGS") })
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make help: %v\n%s", err, out)
	}
	for _, target := range r.makeTargets() {
		if target.sentence != "" && !strings.Contains(string(out), target.name+"\t"+target.sentence+"\n") {
			t.Errorf("make help does not list %s; mend the pattern of the help target", target.name)
		}
	}
	if t.Failed() {
		t.Logf("make help says:\n%s", out)
	}
}
