package serve_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/injector/internal/patch/patchtest"
	"github.com/weftmesh/weft/services/injector/internal/serve"
	"github.com/weftmesh/weft/services/injector/internal/settings"
	"github.com/weftmesh/weft/services/injector/internal/values"
)

// rule is one of the rules of spec/identity-injector-mirror.md §3, as what a
// review makes of an object. In a map, null means that there is no such key.
type rule struct {
	Name      string            `json:"name"`
	Namespace map[string]string `json:"namespace"` // its annotations
	Values    json.RawMessage   `json:"values"`
	Kind      string            `json:"kind"` // Pod unless given
	Object    json.RawMessage   `json:"object"`
	Want      struct {
		Rejected       string             `json:"rejected"` // part of why
		Unchanged      bool               `json:"unchanged"`
		Containers     []string           `json:"containers"`
		InitContainers []string           `json:"initContainers"`
		Volumes        []string           `json:"volumes"`
		Env            map[string]*string `json:"env"`  // of the proxy
		Args           map[string]*string `json:"args"` // of our init container, by flag
		Annotations    map[string]*string `json:"annotations"`
		Labels         map[string]*string `json:"labels"`
		// At wants JSON at a path: a container is found by its name.
		At       map[string]json.RawMessage `json:"at"`
		Warnings []string                   `json:"warnings"` // parts, in order
	} `json:"want"`
}

// Each file of testdata/rules is about one part of the rules.
func TestRules(t *testing.T) {
	files, err := filepath.Glob("testdata/rules/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no rules", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var rules []rule
		if err := yaml.UnmarshalStrict(b, &rules); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, r := range rules {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml")+"/"+r.Name, func(t *testing.T) { r.check(t) })
		}
	}
}

func (r *rule) check(t *testing.T) {
	t.Helper()
	v, err := values.Parse(r.Values, "v1")
	if err != nil {
		t.Fatal(err)
	}
	a := &serve.Admitter{
		Settings:   fixed{given: &settings.Settings{Values: v, Anchors: "PEM"}},
		Namespaces: names(r.Namespace), ControllerNamespace: "linkerd",
	}
	if r.Kind == "" {
		r.Kind = "Pod"
	}
	resp := decode(t, post(t, a, reviewOf("v1", r.Kind, "CREATE", string(r.Object)))).Response
	if !resp.Allowed || r.Want.Rejected != "" {
		if resp.Allowed || r.Want.Rejected == "" || !strings.Contains(resp.Result.Message, r.Want.Rejected) {
			t.Fatalf("allowed %v, %v", resp.Allowed, resp.Result)
		}
		return
	}
	if r.Want.Unchanged != (len(resp.Patch) == 0) {
		t.Fatalf("patch: %.300s", resp.Patch)
	}
	if r.Want.Unchanged {
		return
	}
	raw, err := patchtest.Apply(r.Object, resp.Patch)
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	var tree map[string]any
	if err := json.Unmarshal(raw, &pod); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &tree); err != nil {
		t.Fatal(err)
	}
	for _, list := range []struct {
		what      string
		want, got []string
	}{
		{"containers", r.Want.Containers, named(pod.Spec.Containers)},
		{"initContainers", r.Want.InitContainers, named(pod.Spec.InitContainers)},
		{"volumes", r.Want.Volumes, volumes(pod.Spec.Volumes)},
	} {
		if diff := cmp.Diff(list.want, list.got); list.want != nil && diff != "" {
			t.Errorf("%s (-want +got):\n%s", list.what, diff)
		}
	}
	entries(t, "annotation", r.Want.Annotations, pod.Annotations)
	entries(t, "label", r.Want.Labels, pod.Labels)
	entries(t, "variable", r.Want.Env, environment(&pod))
	entries(t, "argument", r.Want.Args, arguments(&pod))
	for path, want := range r.Want.At {
		var w any
		if err := json.Unmarshal(want, &w); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(w, at(tree, strings.Split(path, "/"))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	if len(resp.Warnings) != len(r.Want.Warnings) {
		t.Errorf("warnings %q, want %q", resp.Warnings, r.Want.Warnings)
		return
	}
	for i, part := range r.Want.Warnings {
		if !strings.Contains(resp.Warnings[i], part) {
			t.Errorf("warning %q, want %q", resp.Warnings[i], part)
		}
	}
}

func entries(t *testing.T, what string, want map[string]*string, got map[string]string) {
	t.Helper()
	for key, w := range want {
		g, there := got[key]
		if there != (w != nil) || there && g != *w {
			t.Errorf("%s %s = %q (%v), want %v", what, key, g, there, deref(w))
		}
	}
}

func deref(s *string) string {
	if s == nil {
		return "none"
	}
	return fmt.Sprintf("%q", *s)
}

func named(list []corev1.Container) (out []string) {
	for _, c := range list {
		out = append(out, c.Name)
	}
	return out
}

func volumes(list []corev1.Volume) (out []string) {
	for _, v := range list {
		out = append(out, v.Name)
	}
	return out
}

func environment(pod *corev1.Pod) map[string]string {
	out := map[string]string{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name != "linkerd-proxy" {
			continue
		}
		for _, e := range c.Env {
			out[e.Name] = e.Value
			if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
				out[e.Name] = "field " + e.ValueFrom.FieldRef.FieldPath
			}
		}
	}
	return out
}

func arguments(pod *corev1.Pod) map[string]string {
	out := map[string]string{}
	for _, c := range pod.Spec.InitContainers {
		if c.Name != "linkerd-init" && c.Name != "linkerd-network-validator" {
			continue
		}
		for i, arg := range c.Args {
			if flag, value, ok := strings.Cut(arg, "="); ok {
				out[flag] = value
			} else if strings.HasPrefix(arg, "--") && i+1 < len(c.Args) {
				out[arg] = c.Args[i+1]
			}
		}
	}
	return out
}

// at walks a document; in a list, it looks for the element of that name.
func at(doc any, path []string) any {
	for _, step := range path {
		switch d := doc.(type) {
		case map[string]any:
			doc = d[step]
		case []any:
			i := slices.IndexFunc(d, func(e any) bool {
				m, ok := e.(map[string]any)
				return ok && (m["name"] == step || fmt.Sprint(m["containerPort"]) == step)
			})
			if doc = nil; i >= 0 {
				doc = d[i]
			}
		default:
			return nil
		}
	}
	return doc
}
