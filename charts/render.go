package charts

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

// Options say for whom a chart is rendered. The zero value renders a first
// install by `weft` into the namespace linkerd.
type Options struct {
	// Namespace defaults to linkerd (weft-cni: linkerd-cni), Release to the chart's name.
	Namespace, Release string
	// Version becomes the chart's version and appVersion, and so the default
	// version of the images; empty leaves what the chart says.
	Version string
	// Helm renders what `helm install` would; otherwise the namespace is an
	// object of its own, as there is no --create-namespace.
	Helm bool
	// Upgrade is what a chart sees as .Release.IsUpgrade.
	Upgrade bool
	// KubeVersion is the API server's, such as v1.37.2; empty means the oldest
	// that is supported.
	KubeVersion string
	// Lookup finds an object in the cluster; nil, nil when there is none. Without
	// a Lookup certificates are made anew each time.
	Lookup func(apiVersion, kind, namespace, name string) (map[string]any, error)
}

// oldestKube is the oldest Kubernetes that the charts are for.
const oldestKube = "v1.31.0"

// Manifest is one object, in the order in which it should be applied.
type Manifest struct {
	// File is the template that it came from, such as templates/identity.yaml.
	File                              string
	APIVersion, Kind, Namespace, Name string
	// YAML is the object as text, without a separator.
	YAML string
}

// Render makes a chart's manifests from values laid over its own. An error of
// the templates or of the values' schema is for the person who wrote them.
func Render(name string, values map[string]any, opts Options) ([]Manifest, error) {
	c, err := load(name, opts.Version)
	if err != nil {
		return nil, err
	}
	rendered, err := render(c, values, opts)
	if err != nil {
		return nil, err
	}
	var out []Manifest
	for _, file := range slices.Sorted(maps.Keys(rendered)) {
		if strings.HasSuffix(file, "NOTES.txt") {
			continue
		}
		list, err := split(strings.TrimPrefix(file, c.Name()+"/"), rendered[file])
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	slices.SortStableFunc(out, func(a, b Manifest) int { return cmp.Compare(rank(a.Kind), rank(b.Kind)) })
	return out, nil
}

// Notes is what a chart tells after it was installed.
func Notes(name string, values map[string]any, opts Options) (string, error) {
	c, err := load(name, opts.Version)
	if err != nil {
		return "", err
	}
	rendered, err := render(c, values, opts)
	if err != nil {
		return "", err
	}
	return rendered[path.Join(c.Name(), "templates/NOTES.txt")], nil
}

// Defaults are a chart's own values.
func Defaults(name string) (map[string]any, error) { return readValues(name, "values.yaml") }

// HA are the values of weft-control-plane that make it highly available.
func HA() (map[string]any, error) { return readValues(ControlPlane, "values-ha.yaml") }

func readValues(name, file string) (map[string]any, error) {
	b, err := fs.ReadFile(FS, path.Join(name, file))
	if err != nil {
		return nil, fmt.Errorf("reading the values of chart %s: %w", name, err)
	}
	v, err := chartutil.ReadValues(b)
	if err != nil {
		return nil, fmt.Errorf("reading %s of chart %s: %w", file, name, err)
	}
	return v, nil
}

// Merge lays values over others, deeply, as helm does with several -f: the
// later one wins, and null takes a value away.
func Merge(base, over map[string]any) map[string]any {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range over {
		below, isMap := v.(map[string]any)
		if under, ok := out[k].(map[string]any); ok && isMap {
			out[k] = Merge(under, below)
			continue
		}
		out[k] = v
	}
	return out
}

// YAML joins manifests into one file.
func YAML(list []Manifest) []byte {
	var b strings.Builder
	for _, m := range list {
		b.WriteString("---\n")
		b.WriteString(m.YAML)
		b.WriteString("\n")
	}
	return []byte(b.String())
}

func load(name, version string) (*chart.Chart, error) {
	var files []*loader.BufferedFile
	err := fs.WalkDir(FS, name, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(FS, p)
		files = append(files, &loader.BufferedFile{Name: strings.TrimPrefix(p, name+"/"), Data: b})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading chart %s: %w", name, err)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("loading chart %s: %w", name, err)
	}
	if version != "" {
		c.Metadata.AppVersion = version
		c.Metadata.Version = strings.TrimPrefix(version, "v")
	}
	return c, nil
}

func render(c *chart.Chart, values map[string]any, opts Options) (map[string]string, error) {
	kube, err := chartutil.ParseKubeVersion(cmp.Or(opts.KubeVersion, oldestKube))
	if err != nil {
		return nil, fmt.Errorf("reading Kubernetes' version %q: %w", opts.KubeVersion, err)
	}
	caps := *chartutil.DefaultCapabilities
	caps.KubeVersion = *kube
	if want := c.Metadata.KubeVersion; want != "" && !chartutil.IsCompatibleRange(want, kube.String()) {
		return nil, fmt.Errorf("chart %s needs Kubernetes %s, and this is %s", c.Name(), want, kube)
	}
	top, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{
		Name:      cmp.Or(opts.Release, c.Name()),
		Namespace: cmp.Or(opts.Namespace, namespaceOf(c.Name())),
		Revision:  1,
		IsInstall: !opts.Upgrade,
		IsUpgrade: opts.Upgrade,
	}, &caps)
	if err != nil {
		return nil, fmt.Errorf("values of chart %s: %w", c.Name(), err)
	}
	if !opts.Helm {
		release, ok := top["Release"].(map[string]any)
		if !ok {
			return nil, errors.New("helm's engine has no Release among its values")
		}
		release["Service"] = "CLI"
	}
	if opts.Lookup == nil {
		out, err := engine.Render(c, top)
		return out, explain(c.Name(), err)
	}
	out, err := engine.RenderWithClientProvider(c, top, lookups{opts.Lookup})
	return out, explain(c.Name(), err)
}

// refusal is how helm's engine reports a template's own fail.
var refusal = regexp.MustCompile(`(?s)^execution error at \([^)]*\): (.*)$`)

// explain drops what helm puts around the words of a template's fail.
func explain(name string, err error) error {
	if err == nil {
		return nil
	}
	if said := refusal.FindStringSubmatch(err.Error()); said != nil {
		return fmt.Errorf("values of chart %s: %s", name, strings.TrimSpace(said[1]))
	}
	return fmt.Errorf("rendering chart %s: %w", name, err)
}

func namespaceOf(name string) string {
	if name == CNI {
		return "linkerd-cni"
	}
	return "linkerd"
}

// split cuts a rendered template into its objects.
func split(file, text string) ([]Manifest, error) {
	var out []Manifest
	for part := range strings.SplitSeq("\n"+text, "\n---") {
		part = strings.TrimSpace(part)
		var head struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Metadata   struct {
				Name      string `json:"name"`
				Namespace string `json:"namespace"`
			} `json:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(part), &head); err != nil {
			return nil, fmt.Errorf("%s is not YAML: %w\n%s", file, err, part)
		}
		if head.Kind == "" { // comments only
			continue
		}
		out = append(out, Manifest{
			File: file, YAML: part, APIVersion: head.APIVersion, Kind: head.Kind,
			Namespace: head.Metadata.Namespace, Name: head.Metadata.Name,
		})
	}
	return out, nil
}

// order is that of helm for the kinds that the charts have.
var order = []string{
	"Namespace", "NetworkPolicy", "PodDisruptionBudget", "ServiceAccount", "Secret", "ConfigMap",
	"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
	"Service", "DaemonSet", "Deployment", "HorizontalPodAutoscaler", "StatefulSet",
}

// rank puts what others need first, and webhooks, which others may need to be
// without, last.
func rank(kind string) int {
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	if strings.HasSuffix(kind, "WebhookConfiguration") {
		return len(order) + 1
	}
	return len(order)
}
