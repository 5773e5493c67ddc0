package caseset

import (
	"encoding/json"
	"fmt"
	"slices"
)

// unordered are the lists whose order means nothing.
var unordered = []string{"authorizations", "networks", "identities", "suffixes", "matches", "remove", "add"}

// Plain turns a value into what encoding/json would read back, so that
// numbers and lists compare equal to those of a case file.
func Plain(v any) any {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("unprintable: %v", err)
	}
	var out any
	if err := json.Unmarshal(body, &out); err != nil {
		return fmt.Sprintf("unreadable: %v", err)
	}
	return out
}

// Differ says where got does not hold what want asks for; empty when it does.
// Maps are subsets, null means unset, labels_absent lists names that must not
// be there, and true as a default's name stands for any.
func Differ(want, got any) string { return differ("", want, got) }

func differ(path string, want, got any) string {
	switch w := want.(type) {
	case nil:
		if got != nil && got != "" { // unset and empty are the same on the wire
			return fmt.Sprintf("%s: want unset, got %s", path, show(got))
		}
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok && (got != nil || len(w) > 0) { // an empty map and an unset one are the same on the wire
			return fmt.Sprintf("%s: want %s, got %s", path, show(want), show(got))
		}
		return differMap(path, w, g)
	case []any:
		g, _ := got.([]any)
		if len(w) != len(g) {
			return fmt.Sprintf("%s: want %d of %s, got %d of %s", path, len(w), show(want), len(g), show(got))
		}
		return differList(path, w, g)
	case bool:
		if name, isName := got.(string); isName && w && name != "" {
			return ""
		}
		if want != got {
			return fmt.Sprintf("%s: want %v, got %s", path, w, show(got))
		}
	default:
		if want == "tls-unauthenticated" { // as some cases write it; the README's word is ours
			want = "mtls-unauthenticated"
		}
		if want != got && (want != "" || got != nil) {
			return fmt.Sprintf("%s: want %s, got %s", path, show(want), show(got))
		}
	}
	return ""
}

func differMap(path string, want, got map[string]any) string {
	for _, key := range sorted(want) {
		if key == "labels_absent" {
			labels, _ := got["labels"].(map[string]any)
			names, _ := want[key].([]any)
			for _, name := range names {
				if _, there := labels[fmt.Sprint(name)]; there {
					return fmt.Sprintf("%s: label %v is there", path, name)
				}
			}
			continue
		}
		if d := differ(path+"."+key, want[key], got[key]); d != "" {
			return d
		}
	}
	return ""
}

func differList(path string, want, got []any) string {
	if !slices.Contains(unordered, lastOf(path)) {
		for i := range want {
			if d := differ(fmt.Sprintf("%s[%d]", path, i), want[i], got[i]); d != "" {
				return d
			}
		}
		return ""
	}
	left := slices.Clone(got)
	for _, w := range want {
		at := slices.IndexFunc(left, func(g any) bool { return differ("", w, g) == "" })
		if at < 0 {
			return fmt.Sprintf("%s: %s is not among %s", path, show(w), show(left))
		}
		left = slices.Delete(left, at, at+1)
	}
	return ""
}

func lastOf(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '.' {
			return path[i+1:]
		}
	}
	return path
}

func sorted(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func show(v any) string {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	const most = 400
	if len(body) > most {
		return string(body[:most]) + "…"
	}
	return string(body)
}
