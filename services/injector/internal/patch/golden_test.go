package patch_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/injector/internal/decide"
	"github.com/weftmesh/weft/services/injector/internal/patch"
	"github.com/weftmesh/weft/services/injector/internal/patch/patchtest"
	"github.com/weftmesh/weft/services/injector/internal/values"
	"github.com/weftmesh/weft/services/kit/golden"
)

// Each file holds a pod, perhaps values and the annotations of its namespace,
// and what the pod becomes. The section want is the pod after the patch; of the
// environment, only what differs from plain.txtar's.
func TestPod(t *testing.T) {
	plain := environmentOf(t, golden.Files(t, "testdata/plain.txtar")[0])
	for _, f := range golden.Files(t, "testdata/*.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			got := become(t, f)
			if f.Name != "plain" {
				shorten(got, plain)
			}
			b, err := yaml.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			f.Want(t, string(b))
		})
	}
}

// become reads a case and gives the patched pod, or the error as an object.
func become(t *testing.T, f *golden.File) map[string]any {
	t.Helper()
	v, err := values.Parse(f.Part("values"), "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	var namespace map[string]string
	if err := yaml.Unmarshal(f.Part("namespace"), &namespace); err != nil {
		t.Fatal(err)
	}
	raw, err := yaml.YAMLToJSON(f.Part("pod"))
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := json.Unmarshal(raw, &pod); err != nil {
		t.Fatal(err)
	}
	before := pod.DeepCopy()
	ops, warnings, err := patch.Pod(patch.Input{
		Pod: &pod, Namespace: "pottery", NamespaceAnnotations: namespace, Owner: decide.OwnerOf(&pod),
		Values: v, Anchors: "-----ANCHORS-----\n", ControllerNamespace: "linkerd",
	})
	if diff := cmp.Diff(before, &pod); diff != "" {
		t.Errorf("the pod was changed:\n%s", diff)
	}
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	b, err := json.Marshal(ops)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patchtest.Apply(raw, b)
	if err != nil {
		t.Fatal(err)
	}
	var check corev1.Pod
	if err := json.Unmarshal(after, &check); err != nil {
		t.Errorf("what the patch makes is no pod: %v", err)
	}
	var out map[string]any
	if err := json.Unmarshal(after, &out); err != nil {
		t.Fatal(err)
	}
	if len(warnings) > 0 {
		out["warnings"] = warnings
	}
	return out
}

// proxyOf finds the proxy among the containers of a pod.
func proxyOf(pod map[string]any) map[string]any {
	spec, _ := pod["spec"].(map[string]any)
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := spec[list].([]any)
		for _, c := range containers {
			if c, ok := c.(map[string]any); ok && c["name"] == "linkerd-proxy" {
				return c
			}
		}
	}
	return nil
}

func environmentOf(t *testing.T, f *golden.File) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	env, _ := proxyOf(become(t, f))["env"].([]any)
	for _, e := range env {
		out[fmt.Sprint(e)] = true
	}
	return out
}

func shorten(pod map[string]any, plain map[string]bool) {
	proxy := proxyOf(pod)
	env, _ := proxy["env"].([]any)
	var other []any
	for _, e := range env {
		if !plain[fmt.Sprint(e)] {
			other = append(other, e)
		}
	}
	if proxy != nil {
		proxy["env"] = other
	}
}

// Whatever a user writes into annotations, the patch stays a patch (complaint
// C5, and §3.6's bug to avoid).
func FuzzPod(f *testing.F) {
	f.Add("config.linkerd.io/proxy-log-level", `linkerd[name="outbound"]=debug`)
	f.Add("config.linkerd.io/proxy-additional-env", `[{"name":"A","value":"\"quoted\""}]`)
	f.Add("config.linkerd.io/opaque-ports", "1-2,x,,99999999999")
	f.Add("config.linkerd.io/proxy-cpu-limit", "1e999")
	f.Add("a/b~c", "\x00\xff")
	v := values.Default("v1")
	f.Fuzz(func(t *testing.T, key, value string) {
		pod := &corev1.Pod{}
		pod.Annotations = map[string]string{key: value}
		pod.Spec.Containers = []corev1.Container{{Name: "main"}}
		raw, err := json.Marshal(pod)
		if err != nil {
			t.Skip("not a pod that JSON can hold")
		}
		ops, _, err := patch.Pod(patch.Input{
			Pod: pod, Namespace: "pottery", NamespaceAnnotations: map[string]string{key: value},
			Values: v, Anchors: "x", ControllerNamespace: "linkerd",
		})
		if err != nil {
			return
		}
		b, err := json.Marshal(ops)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := patchtest.Apply(raw, b); err != nil {
			t.Errorf("Apply() = %v", err)
		}
	})
}

func TestAnnotate(t *testing.T) {
	got, err := json.Marshal(patch.Annotate(nil, "config.linkerd.io/opaque~ports", `3"06`))
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"op":"add","path":"/metadata/annotations","value":{}},` +
		`{"op":"add","path":"/metadata/annotations/config.linkerd.io~1opaque~0ports","value":"3\"06"}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := len(patch.Annotate(map[string]string{}, "a", "b")); n != 1 {
		t.Errorf("%d operations for an object with annotations, want 1", n)
	}
}

func ExampleAnnotate() {
	b, _ := json.Marshal(patch.Annotate(map[string]string{"team": "glaze"}, "config.linkerd.io/opaque-ports", "3306"))
	fmt.Println(string(b))
	// Output: [{"op":"add","path":"/metadata/annotations/config.linkerd.io~1opaque-ports","value":"3306"}]
}
