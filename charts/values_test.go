package charts_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weftmesh/weft/charts"
)

var all = []string{charts.CRDs, charts.ControlPlane, charts.CNI}

// value is one of a chart's values that has no values below it.
type value struct{ path, standard, what string }

// TestValuesAreDocumented: above each value there is a comment, and each value
// is in the table of the chart's README (-update writes it).
func TestValuesAreDocumented(t *testing.T) {
	for _, chart := range all {
		t.Run(chart, func(t *testing.T) {
			list := documented(t, chart)
			var b strings.Builder
			b.WriteString("| value | default | what |\n|---|---|---|\n")
			for _, v := range list {
				if v.what == "" {
					t.Errorf("%s has no comment", v.path)
				}
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.path, code(v.standard), strings.ReplaceAll(v.what, "|", `\|`))
			}
			const begin, end = "<!-- values: written by go test -update -->\n", "<!-- end -->"
			file := path.Join(chart, "README.md")
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			before, rest, ok := strings.Cut(string(text), begin)
			now, after, ok2 := strings.Cut(rest, end)
			if !ok || !ok2 {
				t.Fatalf("%s has no place for the table", file)
			}
			if *update {
				if err := os.WriteFile(file, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if now != b.String() {
				t.Errorf("the table in %s is old; go test -update writes it", file)
			}
		})
	}
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// documented reads values.yaml with its comments.
func documented(t *testing.T, chart string) []value {
	t.Helper()
	b, err := fs.ReadFile(charts.FS, path.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	var out []value
	var walk func(n *yaml.Node, at, above string)
	walk = func(n *yaml.Node, at, above string) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, val := n.Content[i], n.Content[i+1]
			p := strings.TrimPrefix(at+"."+key.Value, ".")
			what := comment(key)
			if what == "" && n.Style == yaml.FlowStyle {
				what = above // {limit: "", request: ""} is described as one
			}
			if val.Kind == yaml.MappingNode && len(val.Content) > 0 {
				if what == "" {
					t.Errorf("%s has no comment", p)
				}
				walk(val, p, what)
				continue
			}
			out = append(out, value{p, standard(val), what})
		}
	}
	walk(doc.Content[0], "", "")
	return out
}

// standard is a default in one short line.
func standard(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		var v any
		if n.Decode(&v) == nil {
			if b, err := json.Marshal(v); err == nil {
				return strings.ReplaceAll(string(b), "|", `\|`)
			}
		}
	}
	if n.Value == "" {
		return `""`
	}
	return n.Value
}

func comment(key *yaml.Node) string {
	var words []string
	for line := range strings.SplitSeq(key.HeadComment+"\n"+key.LineComment, "\n") {
		if line = strings.TrimSpace(strings.TrimLeft(line, "#")); line != "" {
			words = append(words, line)
		}
	}
	return strings.Join(words, " ")
}

// TestSchemaCoversValues: the schema has each value, refuses others on each
// level, and has nothing that isn't a value.
func TestSchemaCoversValues(t *testing.T) {
	for _, chart := range all {
		t.Run(chart, func(t *testing.T) {
			b, err := fs.ReadFile(charts.FS, path.Join(chart, "values.schema.json"))
			if err != nil {
				t.Fatal(err)
			}
			var root map[string]any
			if err := json.Unmarshal(b, &root); err != nil {
				t.Fatal(err)
			}
			v, err := charts.Defaults(chart)
			if err != nil {
				t.Fatal(err)
			}
			covered(t, root, root, v, "")
		})
	}
}

func covered(t *testing.T, root, schema, v map[string]any, at string) {
	t.Helper()
	schema = resolved(t, root, schema)
	properties, _ := schema["properties"].(map[string]any)
	if properties == nil {
		return // a value of free form
	}
	if schema["additionalProperties"] != false {
		t.Errorf("%s takes names that nobody knows", at)
	}
	for name, val := range v {
		below, ok := properties[name].(map[string]any)
		if !ok {
			t.Errorf("the schema lacks %s.%s", at, name)
			continue
		}
		if m, ok := val.(map[string]any); ok {
			covered(t, root, below, m, at+"."+name)
		}
	}
	for name := range properties {
		if _, ok := v[name]; !ok && !optional(at, name) {
			t.Errorf("the schema has %s.%s, which is no value", at, name)
		}
	}
}

// optional are names that values may have though ours don't.
func optional(at, name string) bool {
	last := at[strings.LastIndex(at, ".")+1:]
	return name == "global" ||
		strings.HasSuffix(last, "Probe") || strings.HasSuffix(last, "esources") || strings.HasSuffix(last, "Selector") ||
		slices.Contains([]string{"deploymentStrategy", "updateStrategy", "rollingUpdate", "cpu", "memory", "ephemeral-storage"}, last)
}

func resolved(t *testing.T, root, schema map[string]any) map[string]any {
	t.Helper()
	ref, ok := schema["$ref"].(string)
	if !ok {
		return schema
	}
	definitions, _ := root["definitions"].(map[string]any)
	found, ok := definitions[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
	if !ok {
		t.Fatalf("the schema has no %s", ref)
	}
	return found
}

// TestHighAvailabilityValues: values-ha.yaml has only names that values.yaml has.
func TestHighAvailabilityValues(t *testing.T) {
	ha, err := charts.HA()
	if err != nil {
		t.Fatal(err)
	}
	rendered(t, charts.ControlPlane, "") // the schema is in force
	if _, err := charts.Render(charts.ControlPlane, ha, charts.Options{}); err != nil {
		t.Error(err)
	}
}
