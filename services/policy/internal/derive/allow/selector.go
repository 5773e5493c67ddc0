package allow

import (
	"slices"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// labels are those of one workload: its own over its template's.
type labels struct{ own, shared map[string]string }

func (l labels) get(key string) (string, bool) {
	if v, ok := l.own[key]; ok {
		return v, true
	}
	v, ok := l.shared[key]
	return v, ok
}

// matches applies a Kubernetes label selector. No selector selects nothing, an
// empty one everything.
func matches(s *busv1.Selector, l labels) bool {
	if s == nil {
		return false
	}
	for k, want := range s.GetMatchLabels() {
		if got, ok := l.get(k); !ok || got != want {
			return false
		}
	}
	for _, r := range s.GetRequirements() {
		if !satisfies(r, l) {
			return false
		}
	}
	return true
}

// satisfies follows Kubernetes: NotIn holds for a workload without the label.
func satisfies(r *busv1.Requirement, l labels) bool {
	got, ok := l.get(r.GetKey())
	switch r.GetOperator() {
	case "In":
		return ok && slices.Contains(r.GetValues(), got)
	case "NotIn":
		return !ok || !slices.Contains(r.GetValues(), got)
	case "Exists":
		return ok
	case "DoesNotExist":
		return !ok
	}
	return false
}
