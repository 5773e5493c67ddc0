// Package status says what the statuses of routes, egress networks and rate
// limits should be. Package accept has judged them; this one puts the verdicts
// into words that the watcher writes to Kubernetes.
//
// Of and All are pure. Source keeps what was derived for as long as the tables
// stay as they are, since it is asked for again and again.
package status

import (
	"slices"

	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// Of is the wanted status of one object. A route without a parent of ours has
// one, too, with no parents: what was written of a former parent must go.
func Of(j table.Judged) *busv1.Status {
	out := &busv1.Status{
		Key: j.Key, Group: j.Group, Kind: j.Kind, Namespace: j.Namespace, Name: j.Name, Uid: j.UID, Generation: j.Generation,
	}
	if j.Accepted != nil {
		only := &busv1.ParentStatus{Conditions: []*busv1.Condition{condition(accept.TypeAccepted, *j.Accepted)}}
		if t := j.Target; t != nil {
			// A rate limit's status repeats its target.
			only.ParentGroup, only.ParentKind, only.ParentName = t.GetGroup(), t.GetKind(), t.GetName()
		}
		out.Parents = []*busv1.ParentStatus{only}
		return out
	}
	for _, v := range j.Parents {
		p := parent(v)
		// The same reference written twice is one parent.
		if !slices.ContainsFunc(out.Parents, func(o *busv1.ParentStatus) bool { return proto.Equal(o, p) }) {
			out.Parents = append(out.Parents, p)
		}
	}
	return out
}

// parent is what one parent makes of a route. The reference is as it was written,
// so that people and tools find it in the spec; only the namespace is filled in,
// as Linkerd does.
func parent(v accept.Verdict) *busv1.ParentStatus {
	out := &busv1.ParentStatus{
		ParentGroup: v.Ref.GetGroup(), ParentKind: v.Ref.GetKind(), ParentNamespace: v.Parent.Namespace, ParentName: v.Ref.GetName(),
		SectionName: v.Ref.GetSectionName(), Port: v.Ref.GetPort(),
		Conditions: []*busv1.Condition{condition(accept.TypeAccepted, v.Accepted)},
	}
	if v.ResolvedRefs != nil {
		out.Conditions = append(out.Conditions, condition(accept.TypeResolvedRefs, *v.ResolvedRefs))
	}
	return out
}

func condition(kind string, c accept.Condition) *busv1.Condition {
	return &busv1.Condition{Type: kind, Holds: c.Holds, Reason: c.Reason, Message: cut(c.Message)}
}

// maxMessage is below what Kubernetes takes for a condition's message, 32 KiB.
const maxMessage = 2048

func cut(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	s = s[:maxMessage]
	for len(s) > 0 && s[len(s)-1]&0xC0 == 0x80 { // not within a character
		s = s[:len(s)-1]
	}
	return s[:len(s)-1] + "…"
}
