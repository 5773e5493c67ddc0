package table

import (
	"maps"
	"slices"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// routes are the routes by what they are attached to and by what they refer to,
// and the verdicts on them.
type routes struct {
	byKey    map[string]*route.Route
	attached map[route.Parent]map[string]*route.Route
	users    map[use]map[string]*route.Route
	verdicts map[route.Parent][]accept.Verdict
}

// use is something that the verdict on a route depends on, besides its parents
// and the other routes there.
type use struct {
	grants bool // of the namespace; otherwise the Service
	key    string
}

func newRoutes() routes {
	return routes{
		byKey:    map[string]*route.Route{},
		attached: map[route.Parent]map[string]*route.Route{},
		users:    map[use]map[string]*route.Route{},
		verdicts: map[route.Parent][]accept.Verdict{},
	}
}

// put stores a route, or takes it out if it is nil. It returns the parents whose
// routes must be judged anew.
func (r *routes) put(key string, now *route.Route) []route.Parent {
	var touched []route.Parent
	if old := r.byKey[key]; old != nil {
		for _, p := range old.Parents() {
			leave(r.attached, p, key)
			touched = append(touched, p)
		}
		for _, u := range usesOf(old) {
			leave(r.users, u, key)
		}
	}
	set(r.byKey, key, now)
	if now == nil {
		return touched
	}
	for _, p := range now.Parents() {
		enter(r.attached, p, key, now)
		touched = append(touched, p)
	}
	for _, u := range usesOf(now) {
		enter(r.users, u, key, now)
	}
	return touched
}

// dependents lists the parents whose routes refer to something.
func (r *routes) dependents(u use) []route.Parent {
	var out []route.Parent
	for _, user := range r.users[u] {
		out = append(out, user.Parents()...)
	}
	return out
}

// usesOf lists what the verdicts on a route depend on.
func usesOf(r *route.Route) []use {
	out := map[use]struct{}{}
	for ref := range accept.Backends(r) {
		ns := accept.BackendNamespace(r, ref)
		out[use{key: bus.Key(ns, ref.GetName())}] = struct{}{}
		if ns != r.Row.GetNamespace() {
			out[use{grants: true, key: ns}] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(out))
}

// judge judges the routes of a parent anew.
func (r *rows) judge(c derive.Cluster, p route.Parent) {
	if all := r.routes.attached[p]; len(all) > 0 {
		r.routes.verdicts[p] = accept.Routes(c, r, p, slices.Collect(maps.Values(all)))
		return
	}
	delete(r.routes.verdicts, p)
}

func enter[K comparable](index map[K]map[string]*route.Route, k K, key string, r *route.Route) {
	if index[k] == nil {
		index[k] = map[string]*route.Route{}
	}
	index[k][key] = r
}

func leave[K comparable](index map[K]map[string]*route.Route, k K, key string) {
	delete(index[k], key)
	if len(index[k]) == 0 {
		delete(index, k)
	}
}
