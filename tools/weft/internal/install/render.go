package install

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/charts"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
)

// render makes a chart's documents.
func render(chart string, values Tree, o charts.Options) ([]manifest.Document, error) {
	list, err := charts.Render(chart, deep(values), o)
	if err != nil {
		return nil, &say.Problem{
			What: "the manifests cannot be made", Why: words(err),
			Next: "correct the values that --set, --values and flags give", Err: err,
		}
	}
	var docs []manifest.Document
	for _, m := range list {
		part, err := manifest.Parse(m.File, []byte(m.YAML))
		if err != nil {
			return nil, err
		}
		docs = append(docs, part...)
	}
	return docs, nil
}

// words are what a template or the schema says, without where it stands.
func words(err error) string {
	text := err.Error()
	if _, after, ok := strings.Cut(text, "execution error at ("); ok {
		if _, said, ok := strings.Cut(after, "): "); ok {
			text = said
		}
	}
	return strings.TrimSpace(text)
}

// renderCRDs makes the kinds that a control plane works with. Their chart takes
// few values and refuses others; of values, those that it has count.
func renderCRDs(values Tree, o charts.Options) ([]manifest.Document, error) {
	known, err := charts.Defaults(charts.CRDs)
	if err != nil {
		return nil, fmt.Errorf("reading the values of the kinds: %w", err)
	}
	few := Tree{}
	for key := range known {
		if value, ok := values[key]; ok {
			few[key] = value
		}
	}
	o.Lookup = nil
	return render(charts.CRDs, few, o)
}

// crdNames are the names of the CRDs that the command brings.
func crdNames(o charts.Options) ([]string, error) {
	o.Lookup = nil
	list, err := charts.Render(charts.CRDs, nil, o)
	if err != nil {
		return nil, fmt.Errorf("listing the kinds that a control plane works with: %w", err)
	}
	var names []string
	for _, m := range list {
		if m.Kind == "CustomResourceDefinition" {
			names = append(names, m.Name)
		}
	}
	return names, nil
}

func name(d manifest.Document) string { return text(d.Object, "metadata.name") }

// remember puts the Secret that `weft upgrade` reads behind the other Secrets.
// The issuer is left out of it: it may be rotated later, and what the cluster
// has is then the truth.
func remember(docs []manifest.Document, ns string, values Tree) ([]manifest.Document, error) {
	asked, err := yaml.Marshal(without(values, crtPath, keyPath))
	if err != nil {
		return nil, fmt.Errorf("writing the values that were asked for: %w", err)
	}
	secret := manifest.Document{Source: overridesName, Line: 1, Object: Tree{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": Tree{
			"name": overridesName, "namespace": ns,
			"labels": Tree{"linkerd.io/control-plane-ns": ns},
		},
		"data": Tree{overridesName: base64.StdEncoding.EncodeToString(asked)},
	}}
	at := len(docs)
	for i, d := range docs {
		if d.Object["kind"] == "Secret" {
			at = i + 1
		}
	}
	return slices.Insert(docs, at, secret), nil
}
