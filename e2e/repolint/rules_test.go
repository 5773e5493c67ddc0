package repolint

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// A rule looks at the tree and says how many things it judged, and what is wrong.
type rule struct {
	name    string
	subject string // what there must be at least one of
	check   func(*repo) (judged int, wrong []problem)
}

var rules = []rule{
	{"package-comment", "packages", packageComments},
	{"room-name", "packages in an internal directory", roomNames},
	{"imports", "modules with Go files", importTable},
	{"lint-paths", "paths in depguard's rules", lintPaths},
	{"file-budget", "hand-written Go files", fileBudget},
	{"workspace", "modules in go.work", workspaceRules},
	{"versions", "direct requirements", oneVersion},
	{"generated", "generated files", generatedApart},
	{"tables", "tables in bus/table.go", tableRules},
	{"readme", "modules in go.work", readmes},
	{"make-targets", "targets in the Makefile", makeTargets},
	{"skips", "test files", skips},
	{"sleeps", "test files", sleeps},
	{"unfinished", "Go files", unfinished},
	{"commands", "commands on pages", commandsExist},
	{"links", "links between pages", links},
	{"weight", "files", weight},
	{"placeless", "text files", placeless},
}

// TestRepository is the point of the package: the tree keeps every rule.
func TestRepository(t *testing.T) {
	r := loadHere(t)
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			judged, wrong := rule.check(r)
			if judged == 0 {
				t.Errorf("found no %s: the subject of rule %s has moved; teach the rule where it is now", rule.subject, rule.name)
			}
			for _, p := range wrong {
				t.Error(p)
			}
			t.Logf("%d %s", judged, rule.subject)
		})
	}
}

// TestRulesCatch gives each rule a tree that breaks it: testdata/<rule>.txtar
// holds the files, and in "want" the problems. @word@ in a file is the word
// without the signs, for what may stand in no file of the repository.
func TestRulesCatch(t *testing.T) {
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			archive, err := txtar.ParseFile(filepath.Join("testdata", rule.name+".txtar"))
			if err != nil {
				t.Fatalf("every rule is shown to catch something: %v", err)
			}
			broken, want := fstest.MapFS{}, ""
			for _, f := range archive.Files {
				data := strings.ReplaceAll(string(f.Data), "@", "")
				if f.Name == "want" {
					want = data
					continue
				}
				broken[f.Name] = &fstest.MapFile{Data: []byte(data)}
			}
			r, err := load(broken)
			if err != nil {
				t.Fatal(err)
			}
			judged, wrong := rule.check(r)
			if judged == 0 {
				t.Error("nothing was judged")
			}
			var got strings.Builder
			for _, p := range wrong {
				fmt.Fprintln(&got, p)
			}
			if diff := cmp.Diff(want, got.String()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRulesMissTheirSubject: where there is nothing to judge, a rule says so.
func TestRulesMissTheirSubject(t *testing.T) {
	r, err := load(fstest.MapFS{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules {
		if judged, _ := rule.check(r); judged != 0 {
			t.Errorf("%s judged %d %s in an empty tree", rule.name, judged, rule.subject)
		}
	}
	if left, err := filepath.Glob("testdata/*"); err != nil || len(left) != len(rules) {
		t.Errorf("testdata holds %d trees for %d rules (%v); remove what no rule reads", len(left), len(rules), err)
	}
}

// tree is read and parsed once for all tests of the package.
var tree = sync.OnceValues(func() (*repo, error) {
	fsys, err := here()
	if err != nil {
		return nil, err
	}
	return load(fsys)
})

func loadHere(t *testing.T) *repo {
	t.Helper()
	r, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	return r
}
