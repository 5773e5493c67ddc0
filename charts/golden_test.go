package charts_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/charts"
)

// scenario is what a golden file begins with.
type scenario struct {
	Chart string `json:"chart"`
	// HA lays values-ha.yaml below the values.
	HA bool `json:"ha"`
	// Against shows only what is different from a default control plane.
	Against bool `json:"against"`
}

// TestGolden renders each testdata/*.txtar: scenario, values, and what is wanted.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var s scenario
			if err := yaml.UnmarshalStrict(section(a, "scenario"), &s); err != nil {
				t.Fatal(err)
			}
			v := values(t, string(section(a, "values")))
			if s.HA {
				ha, err := charts.HA()
				if err != nil {
					t.Fatal(err)
				}
				v = charts.Merge(ha, v)
			}
			list := renderedWith(t, s.Chart, v, charts.Options{})
			got := whole(t, list)
			if s.Against {
				got = difference(t, variants(t)["default"], list)
			}
			if *update {
				set(a, "want", got)
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(strings.Split(string(section(a, "want")), "\n"), strings.Split(got, "\n")); d != "" {
				t.Errorf("(-want +got; -update accepts it)\n%s", d)
			}
		})
	}
}

func section(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func set(a *txtar.Archive, name, text string) {
	for i := range a.Files {
		if a.Files[i].Name == name {
			a.Files[i].Data = []byte(text)
			return
		}
	}
	a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(text)})
}

func title(m charts.Manifest) string {
	if m.Namespace == "" {
		return m.Kind + " " + m.Name
	}
	return m.Kind + " " + m.Namespace + "/" + m.Name
}

func whole(t *testing.T, list []charts.Manifest) string {
	t.Helper()
	var b bytes.Buffer
	for _, m := range list {
		fmt.Fprintf(&b, "# %s: %s\n%s---\n", m.File, title(m), plain(t, m.YAML))
	}
	return b.String()
}

// difference says which objects come, go, and change, and how.
func difference(t *testing.T, base, list []charts.Manifest) string {
	t.Helper()
	before, after := map[string]string{}, map[string]string{}
	for _, m := range base {
		before[title(m)] = plain(t, m.YAML)
	}
	var b strings.Builder
	for _, m := range list {
		after[title(m)] = plain(t, m.YAML)
	}
	for _, m := range base {
		if _, ok := after[title(m)]; !ok {
			fmt.Fprintf(&b, "gone: %s\n", title(m))
		}
	}
	for _, m := range list {
		old, ok := before[title(m)]
		switch text := after[title(m)]; {
		case !ok:
			fmt.Fprintf(&b, "\nnew: %s\n%s", title(m), indent("+ ", strings.TrimSuffix(text, "\n")))
		case old != text:
			fmt.Fprintf(&b, "\nchanged: %s\n%s", title(m), lines(strings.Split(old, "\n"), strings.Split(text, "\n")))
		}
	}
	return b.String()
}

func indent(with, text string) string {
	return with + strings.ReplaceAll(text, "\n", "\n"+with) + "\n"
}

// lines compares two texts: the longest common subsequence, shown with the two
// lines before each change.
func lines(a, b []string) string {
	length := make([][]int, len(a)+1)
	for i := range length {
		length[i] = make([]int, len(b)+1)
	}
	for i := range slices.Backward(a) {
		for j := range slices.Backward(b) {
			if a[i] == b[j] {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	var out []string
	shown := -1 // index in a of the last line that is out
	context := func(i int) {
		for k := max(shown+1, i-2); k < i; k++ {
			if shown >= 0 && k > shown+1 || shown < 0 && k > 0 && k == i-2 {
				out = append(out, "  …")
			}
			out = append(out, "  "+a[k])
			shown = k
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || length[i+1][j] >= length[i][j+1]):
			context(i)
			out = append(out, "- "+a[i])
			shown = i
			i++
		default:
			context(i)
			out = append(out, "+ "+b[j])
			j++
		}
	}
	return strings.Join(out, "\n") + "\n"
}
