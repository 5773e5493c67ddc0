package caseset

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Kube is one line of a case file that is about Kubernetes objects themselves:
// whether one is admitted, or what its status becomes.
type Kube struct {
	ID      string            `json:"id"`
	Area    string            `json:"area"`
	Given   []json.RawMessage `json:"given"`
	Request KubeRequest       `json:"request"`
	Expect  struct {
		// Admitted is nil for a case about a status.
		Admitted *bool              `json:"admitted"`
		Initial  []map[string]any   `json:"initial"`
		After    [][]map[string]any `json:"after"`
	} `json:"expect"`
	Note string `json:"note"`
}

// KubeRequest is create, of an object, or status, of an object that is there.
type KubeRequest struct {
	K8s    string          `json:"k8s"`
	Object json.RawMessage `json:"object"`
	Ref    string          `json:"ref"`
	Then   []KubeStep      `json:"then"`
}

// KubeStep is a step that may be about a subresource.
type KubeStep struct {
	Step
	Subresource string `json:"subresource"`
}

// LoadKube reads the lines of the area policy that ask Kubernetes from every
// *.jsonl file of a directory; there may be none.
func LoadKube(dir string) ([]Kube, error) {
	return load[Kube](dir, func(h head) bool { return h.of("policy") && h.Request.K8s != "" })
}

// JudgeStatus says how a status differs from the wanted one; empty when it does
// not. Conditions and parents are known by what they say, not by their place, and
// there may be more conditions than the case names. parents_contain lists some of
// the parents, parents all of them.
func JudgeStatus(want, got map[string]any) string {
	for key, w := range want {
		var d string
		switch key {
		case "parents", "parents_contain":
			wanted, _ := w.([]any)
			parents, _ := got["parents"].([]any)
			if key == "parents" && len(wanted) != len(parents) {
				return fmt.Sprintf("want %d parents, got %s", len(wanted), show(got["parents"]))
			}
			d = judgeAmong(wanted, parents)
		case "conditions":
			wanted, _ := w.([]any)
			conditions, _ := got[key].([]any)
			d = judgeAmong(wanted, conditions)
		default:
			d = differ(key, w, got[key])
		}
		if d != "" {
			return d
		}
	}
	return ""
}

// judgeAmong looks for each of the wanted entries.
func judgeAmong(wanted, got []any) string {
	for _, w := range wanted {
		found := slices.ContainsFunc(got, func(g any) bool {
			one, _ := w.(map[string]any)
			other, ok := g.(map[string]any)
			return ok && JudgeStatus(one, other) == ""
		})
		if !found {
			return fmt.Sprintf("%s is not among %s", show(w), show(got))
		}
	}
	return ""
}
