package table

import (
	"maps"
	"slices"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// publish shows the cut to readers in one step and lists who must look again.
func (e *edit) publish(scopes map[string]*Scope, cut Cut) []topic {
	t := e.tables
	var topics []topic
	t.mu.Lock()
	defer t.mu.Unlock()
	for ns, scope := range scopes {
		set(t.scopes, ns, scope)
		topics = append(topics, namespaceTopic(ns))
	}
	topics = append(topics, e.publishWorkloads()...)
	topics = append(topics, e.publishTargets()...)
	e.publishVerdicts()
	t.complete = t.complete || cut.Complete
	t.position = cut.Position
	return topics
}

func (e *edit) publishWorkloads() []topic {
	t := e.tables
	var topics []topic
	for key, w := range e.workloads {
		old := t.workloads[key]
		if old != nil && w != nil && old.Equal(w) {
			continue
		}
		if old != nil {
			t.rows.use(old.TemplateKey, -1)
		}
		if w != nil {
			t.rows.use(w.TemplateKey, 1)
		}
		set(t.workloads, key, w)
		topics = append(topics, workloadTopic(key))
	}
	for key, tpl := range e.templates {
		set(t.templates, key, tpl)
		// Usually a template comes before its workloads and goes after them.
		if parts := bus.Parts(key); t.rows.uses[key] > 0 && len(parts) > 0 {
			topics = append(topics, namespaceTopic(parts[0]))
		}
	}
	return topics
}

// publishTargets shows Services and egress networks with their routes. Whatever
// changes makes a new value, with no answers yet.
func (e *edit) publishTargets() []topic {
	t := e.tables
	var topics []topic
	for p := range e.parents {
		if p.Kind != route.Service {
			continue
		}
		key := bus.Key(p.Namespace, p.Name)
		now, changed := e.services[key]
		if old := t.services[key]; !changed && old != nil {
			now = &Service{Service: old.Service}
		}
		if now != nil {
			now.Routes = accept.Attach(e.verdicts[p])
			now.Answers = newShared[Ask](maxAnswersPerTarget)
		}
		topics = append(topics, e.replace(key, now)...)
	}
	for ns := range e.egress {
		var list []*Egress
		for _, name := range slices.Sorted(maps.Keys(t.rows.egress[ns])) {
			p := route.Parent{Kind: route.EgressNetwork, Namespace: ns, Name: name}
			list = append(list, &Egress{
				Network: t.rows.egress[ns][name],
				Routes:  accept.Attach(t.rows.routes.verdicts[p]),
				Answers: newShared[Ask](maxAnswersPerTarget),
			})
		}
		if list == nil {
			delete(t.egress, ns)
		} else {
			t.egress[ns] = list
		}
		topics = append(topics, egressTopic(ns))
	}
	return topics
}

// publishVerdicts shows what is to be told in statuses.
func (e *edit) publishVerdicts() {
	t := e.tables
	for p, verdicts := range e.verdicts {
		if len(verdicts) == 0 {
			delete(t.verdicts, p)
			continue
		}
		t.verdicts[p] = verdicts
	}
	for ns, verdicts := range e.limits {
		if len(verdicts) == 0 {
			delete(t.limits, ns)
			continue
		}
		t.limits[ns] = verdicts
	}
	for key, r := range e.changed {
		set(t.routes, key, r)
	}
}

// replace puts a Service under its name and its addresses.
func (e *edit) replace(key string, s *Service) []topic {
	t := e.tables
	topics := []topic{serviceTopic(key)}
	if old := t.services[key]; old != nil {
		for _, a := range old.Addresses {
			owners := slices.DeleteFunc(slices.Clone(t.addresses[a]), func(o *Service) bool { return o == old })
			if len(owners) == 0 {
				delete(t.addresses, a)
			} else {
				t.addresses[a] = owners
			}
			topics = append(topics, addressTopic(a))
		}
	}
	if s != nil {
		for _, a := range s.Addresses {
			if slices.Contains(t.addresses[a], s) {
				continue
			}
			owners := append(slices.Clone(t.addresses[a]), s)
			slices.SortFunc(owners, func(x, y *Service) int {
				switch {
				case x.Before(y.Service):
					return -1
				case y.Before(x.Service):
					return 1
				}
				return 0
			})
			t.addresses[a] = owners
			topics = append(topics, addressTopic(a))
		}
	}
	set(t.services, key, s)
	return topics
}

func set[K comparable, V any](m map[K]*V, key K, v *V) {
	if v == nil {
		delete(m, key)
		return
	}
	m[key] = v
}
