package inject_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/injector/inject"
	"github.com/weftmesh/weft/services/kit/golden"
)

// script is the first section of a case: what is done to the manifest in.
type script struct {
	Do        string            `json:"do"` // annotate, manual or uninject
	Config    map[string]string `json:"config"`
	Ingress   bool              `json:"ingress"`
	Namespace string            `json:"namespace"`
	Values    json.RawMessage   `json:"values"`
}

func (s script) run(t *testing.T, in inject.Object) (inject.Object, []inject.Report, error) {
	t.Helper()
	v, err := inject.ParseValues(s.Values, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	m := inject.Mesh{Values: v, Anchors: "-----ANCHORS-----\n"}
	o := inject.Options{Config: s.Config, Ingress: s.Ingress, Namespace: s.Namespace}
	switch s.Do {
	case "annotate":
		return inject.Annotate(in, m, o)
	case "manual":
		return inject.Manual(in, m, o)
	case "uninject":
		return inject.Uninject(in)
	}
	t.Fatalf("do: %q", s.Do)
	return nil, nil, nil
}

// Each file holds what is done, a manifest, and what becomes of it: the
// manifest after it, or the error, and the reports. Of a proxy put into the
// manifest, environment and arguments are left out: package patch has them.
func TestGolden(t *testing.T) {
	for _, f := range golden.Files(t, "testdata/*.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			var do script
			if err := yaml.UnmarshalStrict(f.Part("script"), &do); err != nil {
				t.Fatal(err)
			}
			in, before := manifest(t, f.Part("in")), manifest(t, f.Part("in"))
			out, reports, err := do.run(t, in)
			if diff := cmp.Diff(before, in); diff != "" {
				t.Errorf("the manifest was changed (-before +after):\n%s", diff)
			}
			got := map[string]any{"reports": reports}
			if err != nil {
				got["error"] = err.Error()
				if out != nil {
					t.Errorf("an object comes with the error: %v", out)
				}
			} else {
				shorten(out)
				got["object"] = out
			}
			text, err := yaml.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			f.Want(t, string(text))
		})
	}
}

func manifest(t *testing.T, text []byte) inject.Object {
	t.Helper()
	var out inject.Object
	if err := yaml.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// shorten leaves of our own containers what says that they are there.
func shorten(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			shorten(e)
		}
	case map[string]any:
		if name, _ := v["name"].(string); strings.HasPrefix(name, "linkerd-") && v["image"] != nil {
			for key := range v {
				if key != "name" && key != "image" && key != "restartPolicy" {
					delete(v, key)
				}
			}
		}
		for _, e := range v {
			shorten(e)
		}
	}
}

// What was injected, uninjected, is what it was (annotations of config.linkerd.io
// apart), and injecting twice is injecting once.
func TestRoundTrip(t *testing.T) {
	for _, f := range golden.Files(t, "testdata/manual*.txtar") {
		var do script
		if err := yaml.UnmarshalStrict(f.Part("script"), &do); err != nil {
			t.Fatal(err)
		}
		in := manifest(t, f.Part("in"))
		once, _, err := do.run(t, in)
		if refusal := (*inject.Refusal)(nil); errors.As(err, &refusal) {
			continue
		}
		if err != nil {
			t.Fatal(f.Path, err)
		}
		twice, _, err := do.run(t, once)
		if diff := cmp.Diff(once, twice); err != nil || diff != "" {
			t.Errorf("%s: injecting again: %v (-once +twice):\n%s", f.Path, err, diff)
		}
		do.Do = "uninject"
		back, _, err := do.run(t, once)
		if err != nil {
			t.Fatal(f.Path, err)
		}
		if text, err := json.Marshal(back); err != nil || strings.Contains(string(text), "linkerd-") {
			t.Errorf("%s: something of the mesh is left: %s (%v)", f.Path, text, err)
		}
	}
}

func FuzzObject(f *testing.F) {
	for _, text := range []string{
		`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"a"},"spec":{"template":{"spec":{"containers":[{"name":"m"}]}}}}`,
		`{"kind":"CronJob","apiVersion":"batch/v1","spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"name":"m"}]}}}}}}`,
		`{"kind":"List","apiVersion":"v1","items":[{"kind":"Pod","apiVersion":"v1","spec":{"containers":[]}},7]}`,
		`{"kind":"Service","apiVersion":"v1","metadata":{"annotations":7}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":null,"spec":{"initContainers":null,"volumes":null}}`,
	} {
		f.Add([]byte(text))
	}
	m := inject.Mesh{Anchors: "x"}
	o := inject.Options{Config: map[string]string{"config.linkerd.io/opaque-ports": "1"}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var in inject.Object
		if json.Unmarshal(raw, &in) != nil {
			t.Skip("not an object")
		}
		for _, do := range []func() (inject.Object, []inject.Report, error){
			func() (inject.Object, []inject.Report, error) { return inject.Annotate(in, m, o) },
			func() (inject.Object, []inject.Report, error) { return inject.Manual(in, m, o) },
			func() (inject.Object, []inject.Report, error) { return inject.Uninject(in) },
		} {
			out, _, err := do()
			if err == nil && out == nil {
				t.Error("neither an object nor an error")
			}
			if _, err := json.Marshal(out); err != nil {
				t.Error(err)
			}
		}
	})
}
