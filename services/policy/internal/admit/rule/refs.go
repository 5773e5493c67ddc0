package rule

import "strings"

// reference names another object. An empty group is the core group.
type reference struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// is compares as Linkerd does: case does not matter, and the core group may be
// written as "core".
func (r reference) is(group, kind string) bool {
	return sameGroup(r.Group, group) && strings.EqualFold(r.Kind, kind)
}

func (r reference) String() string {
	if isCore(r.Group) {
		return r.Kind
	}
	return r.Kind + " of group " + r.Group
}

func isCore(group string) bool { return group == "" || strings.EqualFold(group, "core") }

func sameGroup(a, b string) bool {
	return isCore(a) && isCore(b) || strings.EqualFold(a, b)
}
