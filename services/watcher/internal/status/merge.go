package status

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

const (
	// Controller is whose entries of a route's parents are ours: Linkerd's name.
	Controller = "linkerd.io/policy-controller"
	// conditionServed is Weft's own: so many replicas of policy had read the log as
	// far as this generation when the last of them had. It is written once for a
	// generation.
	conditionServed = "weftmesh.io/Served"
	// longestMessage is what Kubernetes takes.
	longestMessage = 32 << 10
)

// condition is a condition as Kubernetes writes it.
type condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	LastTransitionTime string `json:"lastTransitionTime"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
}

// entry is one of a route's parents.
type entry struct {
	Parent     parent      `json:"parentRef"`
	Controller string      `json:"controllerName"`
	Conditions []condition `json:"conditions"`
}

// parent always has a group: absent would mean the CRD's default.
type parent struct {
	Group       string `json:"group"`
	Kind        string `json:"kind"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name"`
	SectionName string `json:"sectionName,omitempty"`
	Port        uint32 `json:"port,omitempty"`
}

// merge makes the patch that brings an object's status to what is wanted; nil
// when it is there, but for the times and the order of things. served is how many
// replicas serve the wanted generation; 0 when that is not known, or not all do.
func merge(obj metav1.Object, wanted *busv1.Status, served int, now time.Time) ([]byte, error) {
	raw, ok := shape.StatusOf(obj)
	if !ok {
		return nil, nil
	}
	m := merger{wanted: wanted, served: served, now: now.UTC().Format(time.RFC3339)}
	var status map[string]any
	switch o := obj.(type) {
	case *shape.EgressNetwork:
		status = m.conditions(raw, nil)
	case *shape.RateLimit:
		status = m.conditions(raw, &o.Spec.TargetRef)
	default:
		status = m.parents(raw)
	}
	if status == nil {
		return nil, nil
	}
	return json.Marshal(map[string]any{
		// A status that was decided on an older object is refused, and decided anew.
		"metadata": map[string]any{"resourceVersion": obj.GetResourceVersion()},
		"status":   status,
	})
}

type merger struct {
	wanted *busv1.Status
	served int
	now    string
}

// parents is a route's new status; nil when it is as wanted. A merge patch
// replaces a list as a whole, so others' entries are sent along.
func (m merger) parents(raw shape.Status) map[string]any {
	var is struct {
		Parents []json.RawMessage `json:"parents"`
	}
	_ = json.Unmarshal(raw, &is) // what can't be read is written anew
	all := make([]any, 0, len(is.Parents)+len(m.wanted.GetParents()))
	var ours []entry
	for _, p := range is.Parents {
		var e entry
		if json.Unmarshal(p, &e) == nil && e.Controller == Controller {
			ours = append(ours, e)
			continue
		}
		var name struct {
			Controller string `json:"controllerName"`
		}
		if json.Unmarshal(p, &name) != nil || name.Controller != Controller {
			all = append(all, p)
		}
	}
	theirs := len(all)
	same := len(ours) == len(m.wanted.GetParents()) && len(is.Parents) == theirs+len(ours)
	for _, p := range m.wanted.GetParents() {
		e := entry{Controller: Controller, Parent: parent{
			Group: p.GetParentGroup(), Kind: p.GetParentKind(), Namespace: p.GetParentNamespace(), Name: p.GetParentName(),
			SectionName: p.GetSectionName(), Port: p.GetPort(),
		}}
		at := slices.IndexFunc(ours, func(o entry) bool { return o.Parent == e.Parent })
		var had []condition
		if at >= 0 {
			had = ours[at].Conditions
			ours = slices.Delete(ours, at, at+1)
		}
		e.Conditions = m.renew(p.GetConditions(), had)
		same = same && at >= 0 && equal(e.Conditions, had)
		all = append(all, e)
	}
	if same {
		return nil
	}
	return map[string]any{"parents": all}
}

// conditions is the new status of what has no parents; nil when it is as wanted.
// target is what a rate limit's status must name.
func (m merger) conditions(raw shape.Status, target *shape.Ref) map[string]any {
	if len(m.wanted.GetParents()) == 0 {
		return nil
	}
	var is struct {
		Conditions []condition `json:"conditions"`
		Target     *shape.Ref  `json:"targetRef"`
	}
	_ = json.Unmarshal(raw, &is)
	next := m.renew(m.wanted.GetParents()[0].GetConditions(), is.Conditions)
	for _, c := range is.Conditions { // of others
		if !slices.ContainsFunc(next, func(n condition) bool { return n.Type == c.Type }) {
			next = append(next, c)
		}
	}
	status := map[string]any{"conditions": next}
	if target != nil {
		status["targetRef"] = map[string]string{"group": target.Group, "kind": target.Kind, "name": target.Name}
		if is.Target == nil || *is.Target != (shape.Ref{Group: target.Group, Kind: target.Kind, Name: target.Name}) {
			return status
		}
	}
	if equal(next, is.Conditions) {
		return nil
	}
	return status
}

// renew makes conditions as wanted. One that still holds, or still doesn't, keeps
// the time since when.
func (m merger) renew(wanted []*busv1.Condition, had []condition) []condition {
	out := make([]condition, 0, len(wanted)+1)
	generation := m.wanted.GetGeneration()
	find := func(kind string) *condition {
		if i := slices.IndexFunc(had, func(c condition) bool { return c.Type == kind }); i >= 0 {
			return &had[i]
		}
		return nil
	}
	for _, w := range wanted {
		c := condition{
			Type: w.GetType(), Status: "False", ObservedGeneration: generation, LastTransitionTime: m.now,
			Reason: w.GetReason(), Message: clipped(w.GetMessage()),
		}
		if w.GetHolds() {
			c.Status = "True"
		}
		if was := find(c.Type); was != nil && was.Status == c.Status && was.LastTransitionTime != "" {
			c.LastTransitionTime = was.LastTransitionTime
		}
		out = append(out, c)
	}
	was := find(conditionServed)
	switch {
	case was != nil && (m.served == 0 || was.ObservedGeneration == generation):
		out = append(out, *was)
	case m.served > 0:
		c := condition{
			Type: conditionServed, Status: "True", ObservedGeneration: generation, LastTransitionTime: m.now,
			Reason: "Served", Message: "in the tables of all " + strconv.Itoa(m.served) + " replicas of policy",
		}
		if m.served == 1 {
			c.Message = "in the tables of the one replica of policy"
		}
		if was != nil && was.Status == c.Status && was.LastTransitionTime != "" {
			c.LastTransitionTime = was.LastTransitionTime
		}
		out = append(out, c)
	}
	return out
}

func clipped(s string) string {
	if len(s) > longestMessage {
		return strings.ToValidUTF8(s[:longestMessage], "")
	}
	return s
}

// equal compares conditions in any order, and not their times.
func equal(a, b []condition) bool {
	plain := func(list []condition) []condition {
		out := slices.Clone(list)
		for i := range out {
			out[i].LastTransitionTime = ""
		}
		slices.SortFunc(out, func(x, y condition) int { return cmp.Compare(x.Type, y.Type) })
		return out
	}
	return slices.Equal(plain(a), plain(b))
}
