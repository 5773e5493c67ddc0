package repolint

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// ours is the import path of the repository's root.
const ours = "github.com/weftmesh/weft"

// weightLimit bounds a file of the repository, in bytes; no more of it is read.
const weightLimit = 1 << 20

// repo is the tree as the rules see it. Paths have slashes and begin at the root.
type repo struct {
	files   []file
	gos     []*goFile
	modules []*module // in order of their directories, tools/pin included
	work    *modfile.WorkFile
}

type file struct {
	path string
	size int64
	data []byte // at most weightLimit
}

// goFile is a parsed file; what is in testdata is none.
type goFile struct {
	file
	dir       string
	test      bool // _test.go
	generated bool
	fset      *token.FileSet
	ast       *ast.File
	module    *module // nil outside every module
}

type module struct {
	dir string
	mod *modfile.File
}

// problem says what is wrong, where, and how to mend it.
type problem struct{ where, what, mend string }

func (p problem) String() string { return p.where + ": " + p.what + "; " + p.mend }

// here opens the tree that this test is part of. The root is written e2e/.. on
// purpose: `go test` looks again only at files whose name begins with the
// module's directory, and would else keep a stale "ok" in its cache.
func here() (fs.FS, error) {
	wd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	return os.DirFS(filepath.Dir(wd) + "/.."), nil
}

// load reads everything that git would take: all files but the ignored ones.
func load(fsys fs.FS) (*repo, error) {
	skip, err := ignored(fsys)
	if err != nil {
		return nil, err
	}
	r := &repo{}
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone while we looked
			return nil
		case err != nil:
			return err
		case name != "." && skip(name, d.IsDir()):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		f, err := read(fsys, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		r.files = append(r.files, f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the tree: %w", err)
	}
	return r, r.parse()
}

func read(fsys fs.FS, name string) (file, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return file{}, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return file{}, err
	}
	data, err := io.ReadAll(io.LimitReader(f, weightLimit))
	return file{path: name, size: info.Size(), data: data}, err
}

// ignored reads .gitignore: lines "name/" and "*.suffix", which hold in every
// directory. Others are refused rather than misread.
func ignored(fsys fs.FS) (func(name string, dir bool) bool, error) {
	data, err := fs.ReadFile(fsys, ".gitignore")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	dirs, globs := []string{".git"}, []string(nil)
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		name, isDir := strings.CutSuffix(line, "/")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.ContainsAny(name, "/!"):
			return nil, fmt.Errorf(".gitignore: repolint can't read %q: teach ignored in e2e/repolint, or write it as name/ or *.suffix", line)
		case isDir:
			dirs = append(dirs, name)
		default:
			globs = append(globs, name)
		}
	}
	return func(name string, dir bool) bool {
		base := path.Base(name)
		match := func(glob string) bool { ok, _ := path.Match(glob, base); return ok }
		return dir && slices.ContainsFunc(dirs, match) || slices.ContainsFunc(globs, match)
	}, nil
}

var generatedLine = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func (r *repo) parse() error {
	for _, f := range r.files {
		var err error
		switch {
		case f.path == "go.work":
			r.work, err = modfile.ParseWork(f.path, f.data, nil)
		case path.Base(f.path) == "go.mod" && !inTestdata(f.path):
			m := &module{dir: path.Dir(f.path)}
			m.mod, err = modfile.Parse(f.path, f.data, nil)
			r.modules = append(r.modules, m)
		}
		if err != nil {
			return err
		}
	}
	for _, f := range r.files {
		if path.Ext(f.path) != ".go" || inTestdata(f.path) {
			continue
		}
		g := &goFile{
			file: f, dir: path.Dir(f.path), test: strings.HasSuffix(f.path, "_test.go"), fset: token.NewFileSet(),
			generated: generatedLine.Match(f.data), module: r.moduleOf(f.path),
		}
		mode := parser.ParseComments | parser.SkipObjectResolution
		if g.generated {
			mode |= parser.ImportsOnly
		}
		var err error
		if g.ast, err = parser.ParseFile(g.fset, f.path, f.data, mode); err != nil {
			continue // the compiler tells it better
		}
		r.gos = append(r.gos, g)
	}
	return nil
}

// inTestdata is for what the go command doesn't look at either.
func inTestdata(name string) bool { return slices.Contains(strings.Split(name, "/"), "testdata") }

// moduleOf finds the module that a path of the tree belongs to, the innermost.
func (r *repo) moduleOf(name string) *module {
	var found *module
	for _, m := range r.modules {
		if (m.dir == "." || within(name, m.dir)) && (found == nil || len(m.dir) > len(found.dir)) {
			found = m
		}
	}
	return found
}

// within reports whether name is dir or below it.
func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

// workspace is the modules that go.work names.
func (r *repo) workspace() []*module {
	if r.work == nil {
		return nil
	}
	var out []*module
	for _, m := range r.modules {
		if slices.ContainsFunc(r.work.Use, func(u *modfile.Use) bool { return path.Clean(u.Path) == m.dir }) {
			out = append(out, m)
		}
	}
	return out
}

func (r *repo) file(name string) (file, bool) {
	i, ok := slices.BinarySearchFunc(r.files, name, func(f file, name string) int { return comparePaths(f.path, name) })
	if !ok {
		return file{}, false
	}
	return r.files[i], true
}

// comparePaths orders as WalkDir does: by component.
func comparePaths(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}

// exists reports whether a file or a directory of this name is in the tree.
func (r *repo) exists(name string) bool {
	return name == "." || slices.ContainsFunc(r.files, func(f file) bool { return within(f.path, name) })
}

// at names the place of a node, for a problem.
func (g *goFile) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", g.path, g.fset.Position(n.Pos()).Line)
}

// imports returns what name stands for in the file: its import path, or "".
func (g *goFile) imports(name string) string {
	for _, s := range g.ast.Imports {
		p := strings.Trim(s.Path.Value, `"`)
		if s.Name == nil && path.Base(p) == name || s.Name != nil && s.Name.Name == name {
			return p
		}
	}
	return ""
}

// forTests is a test file, or one of a package that serves tests.
func (g *goFile) forTests() bool { return g.test || g.imports("testing") == "testing" }
