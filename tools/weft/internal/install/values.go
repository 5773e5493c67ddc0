package install

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"helm.sh/helm/v3/pkg/strvals"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/charts"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// Tree is values of a chart.
type Tree = map[string]any

// asked is what a command line says about the chart's values.
type asked struct {
	files, set, text, fromFile []string
	ha                         bool
	flags                      *manifest.Flags
}

// bind adds the flags of values to cmd.
func bind(cmd *cobra.Command, flags []manifest.Flag) *asked {
	a := &asked{flags: manifest.BindFlags(cmd.Flags(), flags)}
	fs := cmd.Flags()
	fs.StringArrayVarP(&a.files, "values", "f", nil, "file with values of the chart; may be repeated, the last one wins")
	fs.StringArrayVar(&a.set, "set", nil, "value of the chart, as key=value (several with commas between); may be repeated")
	fs.StringArrayVar(&a.text, "set-string", nil, "value of the chart that is text, as key=value")
	fs.StringArrayVar(&a.fromFile, "set-file", nil, "value of the chart that is in a file, as key=path")
	return a
}

// bindHA adds --ha to cmd.
func (a *asked) bindHA(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.ha, "ha", false, "several replicas of everything, spread over nodes, with reserved resources")
}

// values lays what was asked for over base: the values of high availability,
// then files, flags, and --set. base is not changed.
func (a *asked) values(base Tree) (Tree, error) {
	out := charts.Merge(base, nil)
	if a.ha {
		ha, err := charts.HA()
		if err != nil {
			return nil, fmt.Errorf("reading the values of high availability: %w", err)
		}
		out = charts.Merge(out, ha)
	}
	for _, path := range a.files {
		more, err := readValues(path)
		if err != nil {
			return nil, err
		}
		out = charts.Merge(out, more)
	}
	if where := os.Getenv(envRegistry); where != "" {
		out = charts.Merge(out, Tree{"registry": strings.TrimSuffix(where, "/")})
	}
	for _, g := range a.flags.Given() {
		for _, path := range g.Values {
			out = charts.Merge(out, nested(path, g.Value))
		}
	}
	more, err := a.sets()
	if err != nil {
		return nil, err
	}
	return charts.Merge(out, more), nil
}

// sets reads --set, --set-string and --set-file.
func (a *asked) sets() (Tree, error) {
	out := Tree{}
	wrong := func(flag, text string, err error) error {
		return &say.Problem{
			What: fmt.Sprintf("--%s %s makes no sense", flag, text), Why: err.Error(),
			Next: "write key=value, as --set proxy.logLevel=debug", Err: err, Code: usage.Exit,
		}
	}
	for _, text := range a.set {
		if err := strvals.ParseInto(text, out); err != nil {
			return nil, wrong("set", text, err)
		}
	}
	for _, text := range a.text {
		if err := strvals.ParseIntoString(text, out); err != nil {
			return nil, wrong("set-string", text, err)
		}
	}
	for _, text := range a.fromFile {
		read := func(path []rune) (any, error) { return file(string(path)) }
		if err := strvals.ParseIntoFile(text, out, read); err != nil {
			return nil, wrong("set-file", text, err)
		}
	}
	return out, nil
}

func readValues(path string) (Tree, error) {
	text, err := file(path)
	if err != nil {
		return nil, &say.Problem{What: "cannot read the values in " + path, Why: err.Error(), Next: "name a file of at most 1 MiB", Err: err}
	}
	var out Tree
	if err := yaml.Unmarshal([]byte(fmt.Sprint(text)), &out); err != nil {
		return nil, &say.Problem{What: path + " is no file of values", Why: err.Error(), Next: "write it as YAML, as the chart's values.yaml is", Err: err}
	}
	return out, nil
}

// nested is a tree with one value at a path.
func nested(path string, value any) Tree {
	keys := strings.Split(path, ".")
	out := Tree{keys[len(keys)-1]: value}
	for i := len(keys) - 2; i >= 0; i-- {
		out = Tree{keys[i]: out}
	}
	return out
}

// text is a value that is text; empty if it is not there.
func text(of Tree, path string) string {
	s, _, _ := unstructured.NestedString(of, strings.Split(path, ".")...)
	return s
}

// has says whether there is a value that is not empty.
func has(of Tree, path string) bool {
	v, ok, err := unstructured.NestedFieldNoCopy(of, strings.Split(path, ".")...)
	return ok && err == nil && v != "" && v != nil && v != false
}

// without is of less the values at some paths; of is not changed.
func without(of Tree, paths ...string) Tree {
	out := deep(of)
	for _, path := range paths {
		keys := strings.Split(path, ".")
		unstructured.RemoveNestedField(out, keys...)
		for i := len(keys) - 1; i > 0; i-- { // what became empty by that goes, too
			below, _, _ := unstructured.NestedFieldNoCopy(out, keys[:i]...)
			if tree, ok := below.(Tree); ok && len(tree) == 0 {
				unstructured.RemoveNestedField(out, keys[:i]...)
			}
		}
	}
	return out
}

// deep is a copy whose maps are its own.
func deep(of Tree) Tree {
	out := make(Tree, len(of))
	for key, value := range of {
		if below, ok := value.(Tree); ok {
			value = deep(below)
		}
		out[key] = value
	}
	return out
}
