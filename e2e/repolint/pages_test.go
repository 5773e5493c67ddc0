package repolint

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// readmes: each module has a page, and the page names its rooms.
func readmes(r *repo) (int, []problem) {
	mods := r.workspace()
	var wrong []problem
	for _, m := range mods {
		name := path.Join(m.dir, "README.md")
		page, ok := r.file(name)
		if !ok {
			wrong = append(wrong, problem{name, "the module has no README.md", "say in 60 lines what it is, its rooms and how to test it"})
			continue
		}
		for _, p := range r.packages() {
			room := path.Base(p.dir)
			if parent := path.Dir(p.dir); r.moduleOf(p.dir) != m || p.dir == m.dir ||
				parent != m.dir && parent != path.Join(m.dir, "internal") && parent != path.Join(m.dir, "cmd") {
				continue // not a top-level room
			}
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(room) + `\b`).Match(page.data) {
				wrong = append(wrong, problem{name, "does not mention " + room, "say in a line what happens in " + p.dir})
			}
		}
	}
	return len(mods), wrong
}

func (r *repo) pages() []file {
	return slices.DeleteFunc(slices.Clone(r.files), func(f file) bool { return path.Ext(f.path) != ".md" || inTestdata(f.path) })
}

var (
	fence    = regexp.MustCompile("(?ms)^```([a-z]*)[^\n]*\n(.*?)^```")
	indented = regexp.MustCompile(`(?m)^ {4}\S.*$`)
	span     = regexp.MustCompile("`([^`\n]+)`")
	makeCall = regexp.MustCompile(`(?m)(?:^|[\s;&|(])make ([a-z][a-z0-9-]*)`)
	weftCall = regexp.MustCompile(`(?m)(?:^|[\s;&|(/])weft ([a-z][a-z-]*)`)
)

// code is what a page shows as text to type: blocks and spans.
func code(page string) string {
	var out []string
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		if slices.Contains([]string{"", "sh", "bash", "console", "shell"}, m[1]) {
			out = append(out, m[2])
		}
	}
	page = fence.ReplaceAllString(page, "")
	out = append(out, indented.FindAllString(page, -1)...)
	for _, m := range span.FindAllStringSubmatch(page, -1) {
		out = append(out, m[1])
	}
	return strings.Join(out, "\n")
}

// commandsExist: what a page tells a reader to type is there.
func commandsExist(r *repo) (int, []problem) {
	targets := map[string]bool{}
	for _, t := range r.makeTargets() {
		targets[t.name] = true
	}
	subs := r.subcommands()
	var judged int
	var wrong []problem
	for _, page := range r.pages() {
		text := code(string(page.data))
		for _, m := range makeCall.FindAllStringSubmatch(text, -1) {
			judged++
			if !targets[m[1]] {
				wrong = append(wrong, problem{page.path, "shows `make " + m[1] + "`, which the Makefile doesn't have", "correct the page"})
			}
		}
		for _, m := range weftCall.FindAllStringSubmatch(text, -1) {
			judged++
			if !subs[m[1]] {
				wrong = append(wrong, problem{page.path, "shows `weft " + m[1] + "`, which no Use in tools/weft names", "correct the page"})
			}
		}
	}
	return judged, wrong
}

// subcommands reads the Use fields of the user's command, without running it.
func (r *repo) subcommands() map[string]bool {
	subs := map[string]bool{"help": true, "completion": true} // cobra's own
	for _, g := range r.gos {
		if g.test || !within(g.path, "tools/weft") {
			continue
		}
		ast.Inspect(g.ast, func(n ast.Node) bool {
			kv, ok := n.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			if id, ok := kv.Key.(*ast.Ident); ok && id.Name == "Use" {
				if name, _, _ := strings.Cut(literal(kv.Value), " "); name != "" {
					subs[name] = true
				}
			}
			return true
		})
	}
	return subs
}

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// links: one from page to page leads somewhere.
func links(r *repo) (int, []problem) {
	var judged int
	var wrong []problem
	for _, page := range r.pages() {
		text := span.ReplaceAllString(fence.ReplaceAllString(string(page.data), ""), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			judged++
			target, anchor, _ := strings.Cut(m[1], "#")
			name := page.path
			if target != "" {
				name = path.Join(path.Dir(page.path), target)
			}
			f, isFile := r.file(name)
			switch {
			case path.IsAbs(target) || strings.HasPrefix(name, "..") || !isFile && !r.exists(name):
				wrong = append(wrong, problem{page.path, "links to " + m[1] + ", which is not here", "correct the link"})
			case anchor != "" && (!isFile || !slices.Contains(anchors(f), anchor)):
				wrong = append(wrong, problem{page.path, "links to " + m[1] + ", but there is no such heading", "correct the part after #"})
			}
		}
	}
	return judged, wrong
}

// anchors are the headings of a page, as they are written in links.
func anchors(page file) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(string(page.data), -1) {
		out = append(out, strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return out
}
