package repolint

import (
	"fmt"
	"go/version"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// outside are modules that stand outside the workspace on purpose: the
// hundreds of dependencies of the linters, and of Kubernetes itself, must not
// choose everyone's versions. They may ask for a newer Go.
var outside = []string{"tools/kube", "tools/pin"}

// borrows are modules whose replaces are another's: k8s.io/kubernetes requires
// its own parts at v0.0.0 and replaces them, which holds for itself only.
var borrows = []string{"tools/kube"}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func workspaceRules(r *repo) (int, []problem) {
	if r.work == nil || r.work.Go == nil {
		return 0, nil
	}
	var wrong []problem
	add := func(where, what, mend string) { wrong = append(wrong, problem{where, what, mend}) }
	want := r.work.Go.Version
	for _, u := range r.work.Use {
		if _, ok := r.file(path.Join(path.Clean(u.Path), "go.mod")); !ok {
			add("go.work", "uses "+u.Path+", which has no go.mod", "remove the line")
		}
	}
	inWork := r.workspace()
	for _, m := range r.modules {
		where := path.Join(m.dir, "go.mod")
		isOutside := slices.Contains(outside, m.dir)
		if wantPath := path.Join(ours, m.dir); m.mod.Module == nil || m.mod.Module.Mod.Path != wantPath {
			add(where, "the module's path is not its directory's", "call it "+wantPath)
		}
		switch {
		case isOutside == slices.Contains(inWork, m) && isOutside:
			add("go.work", "uses "+m.dir, "leave it out: its dependencies would choose everyone's versions")
		case !isOutside && !slices.Contains(inWork, m):
			add("go.work", "does not use ./"+m.dir, "add it, so that every make target works on it")
		}
		switch {
		case m.mod.Go == nil:
			add(where, "says no Go version", "write go "+want)
		case isOutside && version.Compare("go"+m.mod.Go.Version, "go"+want) < 0, !isOutside && m.mod.Go.Version != want:
			add(where, "says go "+m.mod.Go.Version+", go.work says "+want, "make them equal")
		}
		wrong = append(wrong, r.replaces(m)...)
	}
	for _, dir := range outside {
		if !slices.ContainsFunc(r.modules, func(m *module) bool { return m.dir == dir }) {
			add(dir, "there is no such module", "remove it from outside in e2e/repolint/modules_test.go")
		}
	}
	return len(inWork), wrong
}

// replaces: each points at a sibling, and each sibling that is required has one,
// or the module does not build without the workspace.
func (r *repo) replaces(m *module) []problem {
	if slices.Contains(borrows, m.dir) {
		return nil
	}
	where := path.Join(m.dir, "go.mod")
	var wrong []problem
	replaced := map[string]bool{}
	for _, p := range m.mod.Replace {
		replaced[p.Old.Path] = true
		dir := path.Join(m.dir, p.New.Path)
		i := slices.IndexFunc(r.modules, func(s *module) bool { return s.dir == dir })
		switch {
		case !within(p.Old.Path, ours):
			wrong = append(wrong, problem{where, "replaces " + p.Old.Path + ", which is not ours", "require a version that works"})
		case !modfile.IsDirectoryPath(p.New.Path) || path.IsAbs(p.New.Path):
			wrong = append(wrong, problem{where, "replaces " + p.Old.Path + " by " + p.New.Path, "give the way to the sibling's directory, as in ../bus"})
		case i < 0:
			wrong = append(wrong, problem{where, "replaces " + p.Old.Path + " by " + p.New.Path + ", where no module is", "point it at the sibling's directory"})
		case r.modules[i].mod.Module.Mod.Path != p.Old.Path:
			wrong = append(wrong, problem{where, "replaces " + p.Old.Path + " by another module, " + r.modules[i].mod.Module.Mod.Path, "point it at the sibling's directory"})
		}
	}
	for _, q := range m.mod.Require {
		if within(q.Mod.Path, ours) && !replaced[q.Mod.Path] {
			wrong = append(wrong, problem{where, "requires " + q.Mod.Path + " without a replace", "add one: the sibling is published nowhere"})
		}
	}
	return wrong
}

// oneVersion: each direct dependency, and all of k8s.io, has one version.
func oneVersion(r *repo) (int, []problem) {
	users := map[string]map[string][]string{} // dependency -> version -> directories
	for _, m := range r.workspace() {
		for _, q := range m.mod.Require {
			if q.Indirect && !within(q.Mod.Path, "k8s.io") {
				continue
			}
			if users[q.Mod.Path] == nil {
				users[q.Mod.Path] = map[string][]string{}
			}
			users[q.Mod.Path][q.Mod.Version] = append(users[q.Mod.Path][q.Mod.Version], m.dir)
		}
	}
	var wrong []problem
	for _, dep := range sorted(users) {
		if len(users[dep]) < 2 {
			continue
		}
		var say []string
		for _, v := range sorted(users[dep]) {
			say = append(say, fmt.Sprintf("%s in %s", v, strings.Join(users[dep][v], ", ")))
		}
		wrong = append(wrong, problem{dep, "has several versions: " + strings.Join(say, "; "), "run make tidy; a sibling's version is v0.0.0"})
	}
	return len(users), wrong
}
