package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCompatibilityNamesTests: a row of COMPATIBILITY.md that names a test which is
// not there shows nothing.
func TestCompatibilityNamesTests(t *testing.T) {
	page, err := os.ReadFile("../../COMPATIBILITY.md")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	for _, root := range []string{"../..", "../../../e2e"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			for _, m := range declared.FindAllSubmatch(b, -1) {
				have[string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)(?:/[^`]*)?`").FindAllSubmatch(page, -1)
	if len(named) < 200 {
		t.Errorf("only %d tests are named", len(named))
	}
	for _, m := range named {
		if name := string(m[1]); !have[name] {
			t.Errorf("%s is named, and is no test", name)
		}
	}
	for n := 1; n <= 124; n++ {
		if !rowOf(string(page), n) {
			t.Errorf("behaviour %d has no row", n)
		}
	}
}

// rowOf reports whether a table has a row for the behaviour, alone or among others:
// "| 7 |", "| 70–74 |", "| 76, 77 |".
func rowOf(page string, n int) bool {
	first := regexp.MustCompile(`(?m)^\| (\d+)(?:(–|, )(\d+))? \|`)
	number := func(s string) (v int) {
		for _, c := range s {
			v = 10*v + int(c-'0')
		}
		return v
	}
	for _, m := range first.FindAllStringSubmatch(page, -1) {
		low, high := number(m[1]), number(m[3])
		if n == low || n == high || m[2] == "–" && low <= n && n <= high {
			return true
		}
	}
	return false
}
