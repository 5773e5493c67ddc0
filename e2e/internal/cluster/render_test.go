package cluster

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/weftmesh/weft/e2e/internal/node"
	"github.com/weftmesh/weft/services/kit/golden"
)

// TestRender compares all that a cluster's second node of two would be told, and
// the arguments of every component, with a golden.
func TestRender(t *testing.T) {
	for _, six := range []bool{false, true} {
		p := place{name: "c2", number: 2, network: node.Range(6), six: six}
		name := map[bool]string{false: "cluster.txtar", true: "cluster-ipv6.txtar"}[six]
		t.Run(name, func(t *testing.T) { renderAll(t, p, filepath.Join("testdata", name)) })
	}
}

func renderAll(t *testing.T, p place, path string) {
	t.Helper()
	got := &txtar.Archive{Comment: []byte("Files and arguments of cluster 2 in range 6; go test -update writes them anew.\n")}
	add := func(name, text string) {
		got.Files = append(got.Files, txtar.File{Name: name, Data: []byte(text)})
	}
	for _, name := range append(slices.Sorted(maps.Keys(nodeFiles)), "coredns.yaml") {
		text, err := render(name, p.values(2))
		if err != nil {
			t.Fatal(err)
		}
		add(name, text)
	}
	for number, parts := range map[int][]node.Component{
		1: append(controlParts(p, "/usr/bin/etcd"), workerParts(p, 1, "/usr/bin/containerd")...),
		2: workerParts(p, 2, "/usr/bin/containerd"),
	} {
		var out strings.Builder
		for _, c := range parts {
			fmt.Fprintf(&out, "%s (%s)\n", c.Path, c.Name)
			for _, arg := range c.Args {
				fmt.Fprintf(&out, "  %s\n", arg)
			}
		}
		add(fmt.Sprintf("arguments-%s", nodeName(number)), out.String())
	}
	slices.SortFunc(got.Files, func(a, b txtar.File) int { return strings.Compare(a.Name, b.Name) })
	golden.Text(t, path, string(txtar.Format(got)))
}

// TestRenderedFilesAreAll: no template is left that nobody renders.
func TestRenderedFilesAreAll(t *testing.T) {
	entries, err := fileSystem.ReadDir("files")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, ok := nodeFiles[e.Name()]; !ok && e.Name() != "coredns.yaml" {
			t.Errorf("files/%s is rendered nowhere", e.Name())
		}
	}
}

func TestFill(t *testing.T) {
	o, err := Options{}.fill()
	if err != nil {
		t.Fatal(err)
	}
	if o.Name != "c1" || o.Nodes != 1 || filepath.Base(o.Dir) != "cluster" || filepath.Base(o.Kube) != "kube" {
		t.Errorf("the defaults are %+v", o)
	}
	for name, bad := range map[string]Options{
		"a name with a slash":       {Name: "../c1"},
		"a name that is too long":   {Name: "abcdefghijklm"},
		"the switch's name":         {Name: node.SwitchName},
		"too many nodes":            {Nodes: node.MaxNodes + 1},
		"fewer than none":           {Nodes: -1},
		"no room for a socket name": {Dir: "/" + strings.Repeat("d", 100)},
	} {
		if _, err := bad.fill(); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestNumbers(t *testing.T) {
	dir := t.TempDir()
	take := func(name string, want int) {
		t.Helper()
		got, err := enroll(dir, name, false)
		if err != nil || got.Number != want {
			t.Errorf("cluster %s has number %d, %v, want %d", name, got.Number, err, want)
		}
	}
	take("c1", 1)
	take("east", 2)
	take("c1", 1)
	if err := os.RemoveAll(filepath.Join(dir, "c1")); err != nil {
		t.Fatal(err)
	}
	take("west", 1) // the number that was given back
	for i := 3; i <= node.MaxClusters; i++ {
		take(fmt.Sprintf("c%d", i), i)
	}
	if r, err := enroll(dir, "late", false); err == nil {
		t.Errorf("one more cluster has number %d, without addresses", r.Number)
	}
}
