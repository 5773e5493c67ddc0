package table

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// Judged is one object of which people want to know what became of it.
type Judged struct {
	// Key is made of group, kind, namespace and name.
	Key                               string
	Group, Kind, Namespace, Name, UID string
	Generation                        int64
	// Parents are the verdicts of a route's parents that are ours, in the order
	// in which the route names them.
	Parents []accept.Verdict
	// Accepted is of an egress network or a rate limit; nil for a route.
	Accepted *accept.Condition
	// Target is what a rate limit is about; nil for others.
	Target *busv1.Ref
}

// Judged lists what was judged in the order of keys: at most limit objects after
// a key, whether there are more, and how far the log had been read. All pages
// that tell the same position belong together.
func (t *Tables) Judged(after string, limit int) (list []Judged, more bool, at Position, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.complete {
		return nil, false, Position{}, ErrIncomplete
	}
	var makers []maker
	add := func(key string, judged func() Judged) {
		if key > after {
			makers = append(makers, maker{key, judged})
		}
	}
	for key, r := range t.routes {
		add(key, func() Judged { return t.judgedRoute(key, r) })
	}
	for ns, networks := range t.egress {
		for _, n := range networks {
			key := bus.Key(route.GroupPolicy, "EgressNetwork", ns, n.Row.GetName())
			add(key, func() Judged {
				c := accept.Egress(n.Network)
				return Judged{
					Key: key, Group: route.GroupPolicy, Kind: "EgressNetwork", Namespace: ns, Name: n.Row.GetName(),
					UID: n.Row.GetUid(), Generation: n.Row.GetGeneration(), Accepted: &c,
				}
			})
		}
	}
	for ns, verdicts := range t.limits {
		for _, v := range verdicts {
			key := bus.Key(route.GroupPolicy, "HTTPLocalRateLimitPolicy", ns, v.Row.GetName())
			add(key, func() Judged {
				return Judged{
					Key: key, Group: route.GroupPolicy, Kind: "HTTPLocalRateLimitPolicy", Namespace: ns, Name: v.Row.GetName(),
					UID: v.Row.GetUid(), Generation: v.Row.GetGeneration(), Accepted: &v.Accepted, Target: v.Row.GetTarget(),
				}
			})
		}
	}
	slices.SortFunc(makers, func(a, b maker) int { return cmp.Compare(a.key, b.key) })
	if more = len(makers) > limit; more {
		makers = makers[:limit]
	}
	for _, m := range makers {
		list = append(list, m.judged())
	}
	return list, more, t.position, nil
}

// maker makes an entry when it is known to be on the page.
type maker struct {
	key    string
	judged func() Judged
}

func (t *Tables) judgedRoute(key string, r *route.Route) Judged {
	j := Judged{
		Key: key, Group: r.Row.GetGroup(), Kind: r.Row.GetKind(), Namespace: r.Row.GetNamespace(), Name: r.Row.GetName(),
		UID: r.Row.GetUid(), Generation: r.Row.GetGeneration(),
	}
	for _, p := range r.Parents() {
		for _, v := range t.verdicts[p] {
			if v.Route == r {
				j.Parents = append(j.Parents, v)
			}
		}
	}
	refs := r.Row.GetParents()
	slices.SortStableFunc(j.Parents, func(a, b accept.Verdict) int {
		return cmp.Compare(slices.Index(refs, a.Ref), slices.Index(refs, b.Ref))
	})
	return j
}

// Refused lists in words the routes that a parent does not take, or takes and
// cannot obey whole. The parent is written as kind, namespace/name and perhaps
// :port.
func (t *Tables) Refused(parent string) (list []string, at Position) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	parent, _, _ = strings.Cut(parent, ":")
	for p, verdicts := range t.verdicts {
		if p.String() != parent {
			continue
		}
		for _, v := range verdicts {
			if !v.Accepted.Holds {
				list = append(list, fmt.Sprintf("%v: %s: %s", v.Route, v.Accepted.Reason, v.Accepted.Message))
			} else if v.ResolvedRefs != nil && !v.ResolvedRefs.Holds {
				list = append(list, fmt.Sprintf("%v: %s: %s", v.Route, v.ResolvedRefs.Reason, v.ResolvedRefs.Message))
			}
		}
	}
	return list, t.position
}
