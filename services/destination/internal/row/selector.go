package row

import "slices"

// Selector is a Kubernetes label selector; a nil one selects nothing and an
// empty one everything.
type Selector struct {
	Labels       map[string]string
	Requirements []Requirement
}

// Requirement is one match expression.
type Requirement struct {
	Key, Operator string
	Values        []string
}

// Matches reports whether labels, found through get, satisfy the selector. An
// operator that Kubernetes does not know matches nothing: a policy that cannot
// be read must not apply to everything.
func (s *Selector) Matches(get func(label string) (string, bool)) bool {
	if s == nil {
		return false
	}
	for key, want := range s.Labels {
		if got, ok := get(key); !ok || got != want {
			return false
		}
	}
	for _, r := range s.Requirements {
		if !r.matches(get) {
			return false
		}
	}
	return true
}

func (r Requirement) matches(get func(string) (string, bool)) bool {
	got, ok := get(r.Key)
	switch r.Operator {
	case "In":
		return ok && slices.Contains(r.Values, got)
	case "NotIn":
		return !ok || !slices.Contains(r.Values, got)
	case "Exists":
		return ok
	case "DoesNotExist":
		return !ok
	default:
		return false
	}
}
