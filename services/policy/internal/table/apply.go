package table

import (
	"maps"
	"slices"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/allow"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// Position is how far the log has been read.
type Position struct{ Epoch, Seq uint64 }

// Cut is what Apply takes in one step.
type Cut struct {
	Changes []bus.Change
	// Complete cuts are the whole state: what they don't name is gone.
	Complete bool
	Cause    Cause
	Position Position
}

// Report says what a person should hear about a cut.
type Report struct {
	// Skipped are rows that could not be read. What was there before stays.
	Skipped []error
	// Problems are objects of which a part is ignored, by object.
	Problems map[string][]string
}

// Apply takes one cut and wakes whoever watches what it changed. Only one
// goroutine may call it.
func (t *Tables) Apply(cut Cut) Report {
	t.applying.Lock()
	defer t.applying.Unlock()
	e := edit{
		tables:    t,
		workloads: map[string]*allow.Workload{},
		templates: map[string]*allow.Template{},
		services:  map[string]*Service{},
		dirty:     map[string]struct{}{},
		parents:   map[route.Parent]struct{}{},
		egress:    map[string]struct{}{},
		changed:   map[string]*route.Route{},
		stale:     map[allow.AuthenticationRef]struct{}{},
		report:    Report{Problems: map[string][]string{}},
	}
	changes := cut.Changes
	if cut.Complete {
		changes = append(t.absent(changes), changes...)
	}
	workloads, skipped := decodeWorkloads(changes)
	e.report.Skipped = skipped
	for i, c := range changes {
		if c.Table == busv1.Table_TABLE_WORKLOADS {
			if i < len(workloads) && workloads[i].read {
				e.workloads[c.Key] = workloads[i].is
			}
			continue
		}
		if err := e.read(c); err != nil {
			e.report.Skipped = append(e.report.Skipped, err)
		}
	}
	e.judge()
	topics := e.publish(e.scopes(), cut)
	t.subs.wake(topics, cut.Cause)
	return e.report
}

// edit is a cut on its way into the tables. A nil value removes the key.
type edit struct {
	tables    *Tables
	workloads map[string]*allow.Workload
	templates map[string]*allow.Template
	services  map[string]*Service
	dirty     map[string]struct{}       // namespaces whose inbound policies changed
	parents   map[route.Parent]struct{} // parents whose routes must be judged anew
	egress    map[string]struct{}       // namespaces whose egress networks changed
	changed   map[string]*route.Route
	stale     map[allow.AuthenticationRef]struct{} // authentications that changed
	verdicts  map[route.Parent][]accept.Verdict
	limits    map[string][]accept.LimitVerdict
	report    Report
}

func (e *edit) problems(kind, key string, problems []string) {
	if len(problems) > 0 {
		e.report.Problems[kind+" "+key] = problems
	}
}

// touch has the routes of parents judged anew.
func (e *edit) touch(parents ...route.Parent) {
	for _, p := range parents {
		e.parents[p] = struct{}{}
		switch p.Kind {
		case route.Server:
			e.dirty[p.Namespace] = struct{}{}
		case route.EgressNetwork:
			e.egress[p.Namespace] = struct{}{}
		}
	}
}

// judge judges the routes of every parent that was touched. What is refused is
// told once, not whenever something near it changes.
func (e *edit) judge() {
	r := &e.tables.rows
	e.verdicts = make(map[route.Parent][]accept.Verdict, len(e.parents))
	for p := range e.parents {
		before := r.routes.verdicts[p]
		r.judge(e.tables.cluster, p)
		e.verdicts[p] = r.routes.verdicts[p]
		for _, v := range e.verdicts[p] {
			told := slices.ContainsFunc(before, func(o accept.Verdict) bool { return o.Route == v.Route && o.Accepted == v.Accepted })
			if !v.Accepted.Holds && !told {
				e.problems("route", v.Route.String(), []string{p.String() + " does not take it: " + v.Accepted.Reason + " " + v.Accepted.Message})
			}
		}
	}
}

// scopes makes the new scope of every namespace whose policies, or whatever
// they refer to in any namespace, changed.
func (e *edit) scopes() map[string]*Scope {
	t := e.tables
	for ns, scope := range t.scopes { // written only by this goroutine
		for ref := range e.stale {
			if _, ok := scope.Policies.Refs[ref]; ok {
				e.dirty[ns] = struct{}{}
				break
			}
		}
	}
	out := make(map[string]*Scope, len(e.dirty))
	e.limits = make(map[string][]accept.LimitVerdict, len(e.dirty))
	for ns := range e.dirty {
		e.limits[ns] = accept.RateLimits(&t.rows, slices.Collect(maps.Values(t.rows.limits[ns])))
		out[ns] = t.rows.scope(t.cluster, ns, e.limits[ns])
		if out[ns] != nil {
			e.problems("namespace", ns, out[ns].Policies.Problems)
		}
	}
	return out
}
