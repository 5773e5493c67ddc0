package repolint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

// calls visits every call of the form x.name(…) in the files that serve tests.
func (r *repo) calls(visit func(g *goFile, call *ast.CallExpr, sel *ast.SelectorExpr)) (files int) {
	for _, g := range r.gos {
		if !g.forTests() || g.generated {
			continue
		}
		files++
		ast.Inspect(g.ast, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
					visit(g, call, sel)
				}
			}
			return true
		})
	}
	return files
}

// skips: a test that doesn't run says why.
func skips(r *repo) (int, []problem) {
	var wrong []problem
	files := r.calls(func(g *goFile, call *ast.CallExpr, sel *ast.SelectorExpr) {
		switch sel.Sel.Name {
		case "SkipNow":
			if len(call.Args) > 0 {
				return
			}
		case "Skip", "Skipf":
			if len(call.Args) > 0 {
				lit, ok := call.Args[0].(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING || strings.TrimSpace(literal(lit)) != "" {
					return
				}
			}
		default:
			return
		}
		wrong = append(wrong, problem{g.at(call), "skips a test without a reason", "say in the call what is missing"})
	})
	return files, wrong
}

// sleeps: a test waits for an event. In a synctest bubble a sleep takes no time
// and is the way to let it pass; such a line says "virtual time".
func sleeps(r *repo) (int, []problem) {
	var wrong []problem
	files := r.calls(func(g *goFile, call *ast.CallExpr, sel *ast.SelectorExpr) {
		x, ok := sel.X.(*ast.Ident)
		if !ok || sel.Sel.Name != "Sleep" || g.imports(x.Name) != "time" || g.virtual(call) {
			return
		}
		wrong = append(wrong, problem{g.at(call), "sleeps in a test", "wait for the event; in a synctest bubble say \"virtual time\" on the line"})
	})
	return files, wrong
}

func (g *goFile) virtual(call ast.Node) bool {
	if g.imports("synctest") != "testing/synctest" {
		return false
	}
	line := g.fset.Position(call.Pos()).Line
	for _, c := range g.ast.Comments {
		if g.fset.Position(c.Pos()).Line == line && strings.Contains(c.List[0].Text, "virtual time") {
			return true
		}
	}
	return false
}

// The words are taken apart here, or this file would break its own rules.
var (
	unfinishedSigns = []string{"TO" + "DO", "FIX" + "ME"}
	unfinishedWords = regexp.MustCompile(`\b(` + strings.Join(unfinishedSigns, "|") + `)\b`)
	machinePaths    = regexp.MustCompile(`(?:^|[^\w./-])(/(?:wo` + `rk|ro` + `ot|ho` + `me)/[\w.-]*)`)
	machineRoots    = []string{"/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/"}
	registries      = []string{"go" + "proxy", "proxy.go" + "lang.org", "sum.go" + "lang.org", "registry.npm" + "js", "py" + "pi.org", "arti" + "factory"}
)

func unfinished(r *repo) (int, []problem) {
	var wrong []problem
	for _, g := range r.gos {
		if g.generated || !slices.ContainsFunc(unfinishedSigns, func(w string) bool { return bytes.Contains(g.data, []byte(w)) }) {
			continue
		}
		for i, line := range bytes.Split(g.data, []byte("\n")) {
			if w := unfinishedWords.Find(line); w != nil {
				wrong = append(wrong, problem{fmt.Sprintf("%s:%d", g.path, i+1), "says " + string(w), "finish it, or file an issue and name its number without the word"})
			}
		}
	}
	return len(r.gos), wrong
}

// weight: nothing big and nothing built is kept in git.
func weight(r *repo) (int, []problem) {
	var wrong []problem
	for _, f := range r.files {
		if f.size > weightLimit {
			wrong = append(wrong, problem{f.path, fmt.Sprintf("has %d bytes, more than %d", f.size, weightLimit), "make it when it is needed, or cut it down"})
		}
		if bytes.HasPrefix(f.data, []byte("\x7fELF")) || bytes.HasPrefix(f.data, []byte("!<arch>\n")) {
			wrong = append(wrong, problem{f.path, "is a binary", "remove it and build into .bin"})
		}
	}
	return len(r.files), wrong
}

// placeless: no file names the machine or the registry it was written with.
// Sums are exempt: they list modules under the names their authors gave them.
func placeless(r *repo) (int, []problem) {
	var judged int
	var wrong []problem
	for _, f := range r.files {
		if path.Ext(f.path) == ".sum" || bytes.IndexByte(f.data, 0) >= 0 {
			continue
		}
		judged++
		low := bytes.ToLower(f.data)
		find := func(words []string) string {
			for _, w := range words {
				if bytes.Contains(low, []byte(w)) {
					return w
				}
			}
			return ""
		}
		if host := find(registries); host != "" {
			wrong = append(wrong, problem{f.path, "names the registry " + host, "leave that to the reader's environment"})
		}
		if find(machineRoots) == "" { // the pattern is slow, and this nearly always so
			continue
		}
		for i, line := range bytes.Split(f.data, []byte("\n")) {
			if m := machinePaths.FindSubmatch(line); m != nil {
				wrong = append(wrong, problem{fmt.Sprintf("%s:%d", f.path, i+1), "names the machine's path " + string(m[1]), "say it from the repository's root"})
			}
		}
	}
	return judged, wrong
}
