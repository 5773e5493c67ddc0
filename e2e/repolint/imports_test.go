package repolint

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// kube is how much of Kubernetes a module may know.
type kube int

const (
	noKube     kube = iota
	kubeTypes       // objects, but no way to ask an API server for one
	kubeClient      // credentials and a client
)

// reach is what a module may import, its tests included.
type reach struct {
	ours   []string // our modules, by directory
	kube   kube
	nats   bool
	reason string
}

// reaches is the import table of the design, a row for each module.
// .golangci.yml keeps most of it too and says it in the editor; this table
// keeps all of it, and notices a module that nobody gave a row.
var reaches = map[string]reach{
	"proto":                {reason: "proto is the bottom of the house"},
	"services/kit":         {reason: "kit serves every process and knows no message, no bus and no Kubernetes"},
	"bus":                  {ours: []string{"proto"}, nats: true, reason: "the bus carries rows and is below the services"},
	"services/watcher":     {ours: control, kube: kubeClient, reason: aService},
	"services/identity":    {ours: control, kube: kubeClient, reason: aService},
	"services/mirror":      {ours: control, kube: kubeClient, reason: aService},
	"services/destination": {ours: control, kube: kubeTypes, reason: aFrontEnd},
	"services/policy":      {ours: control, kube: kubeTypes, reason: aFrontEnd},
	"services/injector":    {ours: control, kube: kubeTypes, reason: aFrontEnd},
	"services/heartbeat":   {ours: control, kube: kubeTypes, reason: aFrontEnd},
	"proxy":                {ours: []string{"proto", "services/kit"}, reason: "the proxy knows its control plane by the proxy API alone"},
	"charts":               {kube: kubeClient, nats: true, reason: "charts renders what helm would; its tests put the rendered NATS settings to a server"},
	"tools/weft":           {ours: command, kube: kubeClient, nats: true, reason: "the command runs processes and does not link them"},
	"e2e":                  {ours: control, kube: kubeClient, nats: true, reason: "e2e takes every process as a binary"},
}

// control is what a process of the control plane is made from.
var control = []string{"proto", "bus", "services/kit"}

// command is what the user's command is made from: what `weft install` prints
// are the charts, `weft inject` follows the injector's public rules, and `weft
// policy check` those of the watcher.
var command = append([]string{"charts", "services/injector", "services/watcher"}, control...)

const (
	aService  = "services meet on the bus and on the wire"
	aFrontEnd = "only watcher, identity and mirror hold credentials for the API server, and services meet on the bus"
)

func importTable(r *repo) (int, []problem) {
	var wrong []problem
	judged := map[string]bool{}
	for _, m := range r.workspace() {
		if _, ok := reaches[m.dir]; !ok {
			wrong = append(wrong, problem{m.dir, "has no row in the import table", "add one to reaches in e2e/repolint/imports_test.go"})
		}
	}
	for _, g := range r.gos {
		if g.module == nil {
			continue
		}
		row, ok := reaches[g.module.dir]
		if !ok {
			continue
		}
		judged[g.module.dir] = true
		for _, s := range g.ast.Imports {
			name := strings.Trim(s.Path.Value, `"`)
			if what := r.forbidden(row, g.module, name); what != "" {
				wrong = append(wrong, problem{g.at(s), "imports " + name + ", " + what, row.reason})
			}
		}
	}
	if len(judged) > 0 {
		for _, dir := range sorted(reaches) {
			if !judged[dir] {
				wrong = append(wrong, problem{"e2e/repolint/imports_test.go", "the row " + dir + " is of no module with Go files", "remove or rename the row"})
			}
		}
	}
	return len(judged), wrong
}

// forbidden says what is wrong with an import, or "".
func (r *repo) forbidden(row reach, from *module, name string) string {
	switch {
	case within(name, ours):
		dir, _ := strings.CutPrefix(strings.TrimPrefix(name, ours), "/")
		to := r.moduleOf(dir)
		switch {
		case to == nil:
			return "which is in no module"
		case to == from || slices.Contains(row.ours, to.dir):
			return ""
		case from.dir == "e2e" && path.Base(name) == "simtest": // the door for tests in virtual time
			return ""
		case from.dir == "e2e" && dir == "services/watcher/candidate": // which makes rows for them, as for the command
			return ""
		}
		return fmt.Sprintf("but %s may import of ours only %q", from.dir, row.ours)
	case within(name, "github.com/nats-io") && !row.nats:
		return "but " + from.dir + " may not speak NATS"
	case (within(name, "k8s.io/client-go") || within(name, "sigs.k8s.io/controller-runtime")) && row.kube < kubeClient:
		return "but " + from.dir + " may not ask an API server"
	case (within(name, "k8s.io") || within(name, "sigs.k8s.io")) && name != "sigs.k8s.io/yaml" && row.kube < kubeTypes:
		return "but " + from.dir + " may not know Kubernetes"
	}
	return ""
}

var (
	lintFiles = regexp.MustCompile(`(?m)^\s+files: \[(.*)\]`)
	lintPkg   = regexp.MustCompile(`\bpkg: ([^,\s}]+)`)
)

// lintPaths: a lint rule for a directory that has gone keeps nothing.
func lintPaths(r *repo) (int, []problem) {
	const config = ".golangci.yml"
	f, _ := r.file(config)
	var judged int
	var wrong []problem
	missing := func(what string) {
		wrong = append(wrong, problem{config, "names " + what + ", which is not here", "name what took its place"})
	}
	for _, m := range lintFiles.FindAllSubmatch(f.data, -1) {
		for glob := range strings.SplitSeq(string(m[1]), ",") {
			judged++
			glob = strings.TrimPrefix(strings.Trim(glob, `" `), "!") // "!" takes a directory out of a rule
			if dir := strings.TrimSuffix(strings.TrimPrefix(glob, "**/"), "/**"); !r.exists(dir) {
				missing(glob)
			}
		}
	}
	for _, m := range lintPkg.FindAllSubmatch(f.data, -1) {
		if dir, ok := strings.CutPrefix(string(m[1]), ours+"/"); ok && !r.exists(dir) {
			missing(string(m[1]))
		}
	}
	return judged, wrong
}
