package accept

import (
	"slices"

	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// Attached are the accepted routes of one Service or EgressNetwork. A nil one
// has none.
type Attached struct {
	// Producer routes hold for every client. Oldest first, then by name.
	Producer []Verdict
	// Consumers have routes of their own, by the clients' namespace.
	Consumers map[string][]Verdict
}

// Attach keeps the verdicts that are accepted; nil if there are none.
func Attach(verdicts []Verdict) *Attached {
	var a Attached
	for _, v := range verdicts {
		switch ns := v.Route.Row.GetNamespace(); {
		case !v.Accepted.Holds:
		case v.Route.Producer(v.Parent):
			a.Producer = append(a.Producer, v)
		default:
			if a.Consumers == nil {
				a.Consumers = map[string][]Verdict{}
			}
			a.Consumers[ns] = append(a.Consumers[ns], v)
		}
	}
	if a.Producer == nil && a.Consumers == nil {
		return nil
	}
	return &a
}

// Source is what two clients must have in common to see the same routes: the
// namespace if it has routes of its own, else nothing.
func (a *Attached) Source(namespace string) string {
	if a != nil && len(a.Consumers[namespace]) > 0 {
		return namespace
	}
	return ""
}

// For lists the routes that clients of a namespace see on a port: the producer's
// and their own together, oldest first. Source: spec/destination-policy.md §9.2.
func (a *Attached) For(namespace string, port uint16) []Verdict {
	if a == nil {
		return nil
	}
	var out []Verdict
	for _, v := range slices.Concat(a.Producer, a.Consumers[namespace]) {
		if v.Port == 0 || v.Port == port {
			out = append(out, v)
		}
	}
	slices.SortStableFunc(out, func(x, y Verdict) int { return route.Older(x.Route, y.Route) })
	return out
}
