package repolint

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pkg is the files of one directory that make one package, its tests included.
type pkg struct {
	dir, name string
	files     []*goFile
}

// packages leaves out generated ones, and the x_test halves.
func (r *repo) packages() []*pkg {
	var out []*pkg
	for _, g := range r.gos {
		name := g.ast.Name.Name
		if g.generated || g.test && strings.HasSuffix(name, "_test") {
			continue
		}
		if n := len(out); n == 0 || out[n-1].dir != g.dir || out[n-1].name != name {
			if i := slices.IndexFunc(out, func(p *pkg) bool { return p.dir == g.dir && p.name == name }); i >= 0 {
				out[i].files = append(out[i].files, g)
				continue
			}
			out = append(out, &pkg{dir: g.dir, name: name})
		}
		p := out[len(out)-1]
		p.files = append(p.files, g)
	}
	return out
}

// comment is the package's doc comment; a test file's counts where all files are tests.
func (p *pkg) comment() string {
	onlyTests := !slices.ContainsFunc(p.files, func(g *goFile) bool { return !g.test })
	for _, g := range p.files {
		if g.ast.Doc != nil && (!g.test || onlyTests) {
			return g.ast.Doc.Text()
		}
	}
	return ""
}

// fewestWords is how many a comment needs beyond "Package name" to say something.
const fewestWords = 5

func packageComments(r *repo) (int, []problem) {
	var wrong []problem
	all := r.packages()
	for _, p := range all {
		name, first := p.name, "Package "+p.name
		if p.name == "main" {
			name = path.Base(p.dir)
			first = "Command " + name
		}
		text := p.comment()
		said, ok := strings.CutPrefix(text, first+" ")
		if p.name == "main" && !ok { // "Weft is …" opens a main package as well
			said, ok = strings.CutPrefix(text, strings.ToUpper(name[:1])+name[1:]+" ")
		}
		words := slices.DeleteFunc(strings.Fields(said), func(w string) bool { return strings.Trim(w, "`.,;:") == name })
		switch {
		case text == "":
			wrong = append(wrong, problem{p.dir, "package " + p.name + " has no package comment", "begin one file with // " + first + " … and say what it is for"})
		case !ok:
			wrong = append(wrong, problem{p.dir, "the package comment does not begin with its name", "begin it with // " + first + " …"})
		case len(words) < fewestWords:
			wrong = append(wrong, problem{p.dir, "the package comment only repeats the name", "say what the package is for and the one rule its users must keep"})
		}
	}
	return len(all), wrong
}

var (
	oneWord = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	// banned names say nothing about what happens in the room (STYLE section 5).
	banned = regexp.MustCompile(`^(utils?|common|helpers?|types?|models?|managers?|base|runners?)$`)
)

func roomNames(r *repo) (int, []problem) {
	var judged int
	var wrong []problem
	for _, p := range r.packages() {
		if !slices.Contains(strings.Split(p.dir, "/"), "internal") || p.name == "main" {
			continue
		}
		judged++
		if !oneWord.MatchString(p.name) {
			wrong = append(wrong, problem{p.dir, "package " + p.name + " is not one lower-case word", "name it for what happens in the room"})
		}
		if banned.MatchString(p.name) {
			wrong = append(wrong, problem{p.dir, "package name " + p.name + " says nothing", "name it for what happens in the room"})
		}
		if p.name != path.Base(p.dir) {
			wrong = append(wrong, problem{p.dir, "holds package " + p.name, "give directory and package one name"})
		}
	}
	return judged, wrong
}

// A file of hardLook lines is worth splitting, one of lineLimit needs an excuse.
const (
	hardLook  = 400
	lineLimit = 500
)

var excuse = regexp.MustCompile(`(?:^|[.:]\s+|\n\n?)Long because \w`)

func (g *goFile) lines() int { return bytes.Count(g.data, []byte("\n")) }

// budgeted is what the file budget counts: no tests, nothing generated.
func (r *repo) budgeted() []*goFile {
	return slices.DeleteFunc(slices.Clone(r.gos), func(g *goFile) bool { return g.test || g.generated })
}

func fileBudget(r *repo) (int, []problem) {
	var wrong []problem
	files := r.budgeted()
	for _, g := range files {
		excused := g.ast.Doc != nil && excuse.MatchString(g.ast.Doc.Text()) ||
			len(g.ast.Comments) > 0 && excuse.MatchString(g.ast.Comments[0].Text())
		if g.lines() > lineLimit && !excused {
			wrong = append(wrong, problem{g.path, fmt.Sprintf("has %d lines, more than %d", g.lines(), lineLimit), `split it, or say in its first comment "Long because …"`})
		}
	}
	return len(files), wrong
}

// TestLongFiles fails nothing: with -v it names the files to look at.
func TestLongFiles(t *testing.T) {
	for _, g := range loadHere(t).budgeted() {
		if g.lines() >= hardLook {
			t.Logf("%s has %d lines: look whether it is two files", g.path, g.lines())
		}
	}
}

func generatedApart(r *repo) (int, []problem) {
	const home = "proto/gen"
	var judged int
	var wrong []problem
	for _, g := range r.gos {
		pb := strings.HasSuffix(g.path, ".pb.go")
		if pb || g.generated {
			judged++
		}
		switch {
		case pb && !within(g.path, home):
			wrong = append(wrong, problem{g.path, "a .pb.go file outside " + home, "point buf.gen.yaml at " + home + " and run make gen"})
		case !g.generated && within(g.path, home):
			wrong = append(wrong, problem{g.path, "written by hand among generated files", "move it out of " + home + ", which make gen may empty"})
		}
	}
	return judged, wrong
}
