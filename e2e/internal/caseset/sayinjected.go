package caseset

import (
	"fmt"
	"maps"
	"reflect"
)

// sayInjected says what became of an object in the cases' vocabulary.
func sayInjected(got Admitted) map[string]any {
	had, _ := containerOf(got.Before, "linkerd-proxy")
	has, _ := containerOf(got.After, "linkerd-proxy")
	out := map[string]any{
		"admitted":        got.Allowed,
		"injected":        got.Allowed && has != nil && had == nil,
		"unchanged":       reflect.DeepEqual(got.Before, got.After),
		"labels":          at(got.After, "metadata", "labels"),
		"annotations":     at(got.After, "metadata", "annotations"),
		"containers":      names(at(got.After, "spec", "containers")),
		"init_containers": names(at(got.After, "spec", "initContainers")),
		"volumes":         names(at(got.After, "spec", "volumes")),
	}
	for key, options := range map[string][]string{
		"proxy": {"linkerd-proxy"}, "init": {"linkerd-init", "linkerd-network-validator"}, "debug": {"linkerd-debug"},
	} {
		for _, name := range options {
			if c, ok := containerOf(got.After, name); ok {
				out[key] = sayContainer(c)
			}
		}
	}
	return out
}

// sayContainer flattens what a case says in fewer words than Kubernetes.
func sayContainer(c map[string]any) map[string]any {
	out := maps.Clone(c)
	env, ports, mounts := map[string]any{}, map[string]any{}, []any{}
	for _, e := range list(c["env"]) {
		env[fmt.Sprint(e["name"])] = e["value"]
		if from := at(e, "valueFrom", "fieldRef", "fieldPath"); from != nil {
			env[fmt.Sprint(e["name"])] = from
		}
	}
	for _, p := range list(c["ports"]) {
		ports[fmt.Sprint(p["name"])] = p["containerPort"]
	}
	for _, m := range list(c["volumeMounts"]) {
		mounts = append(mounts, m["mountPath"])
	}
	out["env"], out["ports"], out["mounts"] = env, ports, mounts
	for _, name := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		probe, _ := c[name].(map[string]any)
		if probe == nil {
			continue
		}
		flat := maps.Clone(probe)
		flat["path"], flat["port"] = at(probe, "httpGet", "path"), at(probe, "httpGet", "port")
		out[name] = flat
	}
	if hooks, _ := c["lifecycle"].(map[string]any); hooks != nil {
		flat := map[string]any{}
		for name, hook := range hooks {
			flat[name] = at(hook, "exec", "command")
		}
		out["lifecycle"] = flat
	}
	if resources, _ := c["resources"].(map[string]any); len(resources) == 0 {
		delete(out, "resources") // unset
	}
	return out
}

func containerOf(pod map[string]any, name string) (map[string]any, bool) {
	for _, where := range []string{"initContainers", "containers"} {
		for _, c := range list(at(pod, "spec", where)) {
			if c["name"] == name {
				return c, true
			}
		}
	}
	return nil, false
}

func at(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func list(v any) []map[string]any {
	items, _ := v.([]any)
	var out []map[string]any
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func names(v any) []any {
	out := []any{}
	for _, item := range list(v) {
		out = append(out, item["name"])
	}
	return out
}
