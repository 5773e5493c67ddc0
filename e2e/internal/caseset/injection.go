package caseset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Injection is one line of a case file of the area injector.
type Injection struct {
	ID      string            `json:"id"`
	Area    string            `json:"area"`
	Given   []json.RawMessage `json:"given"`
	Request InjectionRequest  `json:"request"`
	Expect  map[string]any    `json:"expect"`
	Note    string            `json:"note"`
}

// InjectionRequest is what is asked of the injector: an object to create, a
// review or any body to post, or a chart to render.
type InjectionRequest struct {
	K8s    string          `json:"k8s"`
	Object json.RawMessage `json:"object"`
	// Values override the mesh's.
	Values map[string]any `json:"values"`
	Helm   string         `json:"helm"`
	// Component is the workload of the chart that is looked at.
	Component string          `json:"component"`
	HTTPS     string          `json:"https"`
	Body      json.RawMessage `json:"body"`
	Review    *struct {
		APIVersion string          `json:"apiVersion"`
		UID        string          `json:"uid"`
		Kind       string          `json:"kind"`
		Namespace  string          `json:"namespace"`
		Object     json.RawMessage `json:"object"`
	} `json:"review"`
}

// LoadInjections reads the lines of the area injector from every *.jsonl file
// of a directory; there may be none.
func LoadInjections(dir string) ([]Injection, error) {
	return load[Injection](dir, func(h head) bool { return h.of("injector") })
}

// Minimal writes the spec that stands for "any valid one" into an object.
func Minimal(object json.RawMessage) json.RawMessage {
	var head struct {
		Kind string `json:"kind"`
	}
	if json.Unmarshal(object, &head) != nil {
		return object
	}
	const labels, once = `"metadata":{"labels":{"app":"plum"}},`, `{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"x/app:1"}]}}`
	spec := `{"selector":{"matchLabels":{"app":"plum"}},"template":{` + labels + `"spec":{"containers":[{"name":"main","image":"x/app:1"}]}}}`
	switch head.Kind {
	case "Job":
		spec = `{"template":` + once + `}`
	case "CronJob":
		spec = `{"schedule":"@daily","jobTemplate":{"spec":{"template":` + once + `}}}`
	case "ReplicationController":
		spec = strings.Replace(spec, `{"matchLabels":{"app":"plum"}}`, `{"app":"plum"}`, 1)
	}
	return bytes.ReplaceAll(object, []byte(`"@minimal"`), []byte(spec))
}

// NotCalled is the reason that a case gives where the webhook is not asked.
const NotCalled = "webhook not called"

// Admitted is what became of an object.
type Admitted struct {
	// Allowed: the object was admitted.
	Allowed       bool
	Before, After map[string]any
	// Reasons against a proxy, as the injector counted them.
	Reasons []string
}

// JudgeInjection says where what became of an object is not what a case wants;
// empty when it is. Events are not looked at: the watcher makes them.
func JudgeInjection(want map[string]any, got Admitted) string {
	said := sayInjected(got)
	for _, key := range sorted(want) {
		why := ""
		switch key {
		case "event": // needs an API server
		case "injected", "admitted", "unchanged", "labels", "annotations", "containers", "init_containers":
			why = differ("."+key, want[key], said[key])
		case "reasons":
			if names, _ := want[key].([]any); len(names) != 1 || names[0] != NotCalled {
				why = differ("."+key, want[key], Plain(got.Reasons))
			}
		case "volumes_contain":
			why = contains(key, want[key], said["volumes"], true)
		case "volumes_absent":
			why = contains(key, want[key], said["volumes"], false)
		case "annotations_absent":
			why = contains(key, want[key], keysOf(said["annotations"]), false)
		case "labels_absent":
			why = contains(key, want[key], keysOf(said["labels"]), false)
		case "proxy", "init", "debug":
			why = judgeContainer(key, want[key], said[key])
		default:
			why = "the runner does not know what " + key + " means"
		}
		if why != "" {
			return why
		}
	}
	return ""
}

func judgeContainer(name string, want, got any) string {
	w, _ := want.(map[string]any)
	g, _ := got.(map[string]any)
	if g == nil {
		return name + ": there is no such container"
	}
	for _, key := range sorted(w) {
		why := ""
		path := name + "." + key
		switch key {
		case "env_absent":
			why = contains(path, w[key], keysOf(g["env"]), false)
		case "env_contains":
			env, _ := g["env"].(map[string]any)
			for variable, part := range w[key].(map[string]any) {
				if !strings.Contains(fmt.Sprint(env[variable]), fmt.Sprint(part)) {
					why = fmt.Sprintf("%s: %s = %q lacks %q", path, variable, env[variable], part)
				}
			}
		case "mounts":
			why = contains(path, w[key], g[key], true)
		case "args_pairs":
			args, _ := g["args"].([]any)
			for flag, value := range w[key].(map[string]any) {
				if at := slices.Index(args, any(flag)); at < 0 || at+1 == len(args) || args[at+1] != value {
					why = fmt.Sprintf("%s: want %s %v among %s", path, flag, value, show(args))
				}
			}
		default:
			why = differ(path, w[key], g[key])
		}
		if why != "" {
			return why
		}
	}
	return ""
}

func contains(path string, names, list any, wanted bool) string {
	wants, _ := names.([]any)
	have, _ := list.([]any)
	for _, name := range wants {
		if slices.Contains(have, name) != wanted {
			return fmt.Sprintf("%s: %v is among %s: %v", path, name, show(list), !wanted)
		}
	}
	return ""
}

func keysOf(v any) []any {
	m, _ := v.(map[string]any)
	var out []any
	for _, key := range sorted(m) {
		out = append(out, key)
	}
	return out
}
