package table

import (
	"slices"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/allow"
	"github.com/weftmesh/weft/services/policy/internal/derive/outbound"
)

// Cut is what Apply takes in one step.
type Cut struct {
	Changes []bus.Change
	// Complete cuts are the whole state: what they don't name is gone.
	Complete bool
	Cause    Cause
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
	e := edit{
		tables:    t,
		workloads: map[string]*allow.Workload{},
		templates: map[string]*allow.Template{},
		services:  map[string]*Service{},
		dirty:     map[string]struct{}{},
		stale:     map[allow.AuthenticationRef]struct{}{},
		report:    Report{Problems: map[string][]string{}},
	}
	changes := cut.Changes
	if cut.Complete {
		changes = append(t.absent(changes), changes...)
	}
	for _, c := range changes {
		if err := e.read(c); err != nil {
			e.report.Skipped = append(e.report.Skipped, err)
		}
	}
	scopes := e.scopes()
	topics := e.publish(scopes, cut.Complete)
	t.subs.wake(topics, cut.Cause)
	return e.report
}

// edit is a cut on its way into the tables. A nil value removes the key.
type edit struct {
	tables    *Tables
	workloads map[string]*allow.Workload
	templates map[string]*allow.Template
	services  map[string]*Service
	dirty     map[string]struct{}                  // namespaces whose policies changed
	stale     map[allow.AuthenticationRef]struct{} // authentications that changed
	report    Report
}

// read digests one change. Tables that no answer depends on are passed over.
func (e *edit) read(c bus.Change) error {
	switch c.Table {
	case busv1.Table_TABLE_WORKLOADS:
		row, err := decode[busv1.Workload](c)
		if err != nil {
			return err
		}
		e.workloads[c.Key] = nil
		if row != nil {
			e.workloads[c.Key] = allow.NewWorkload(row)
		}
	case busv1.Table_TABLE_TEMPLATES:
		row, err := decode[busv1.Template](c)
		if err != nil {
			return err
		}
		e.templates[c.Key] = nil
		if row != nil {
			e.templates[c.Key] = allow.NewTemplate(row)
			e.problems("template", c.Key, e.templates[c.Key].Problems)
		}
	case busv1.Table_TABLE_SERVICES:
		row, err := decode[busv1.Service](c)
		if err != nil {
			return err
		}
		e.services[c.Key] = nil
		if row != nil {
			s := outbound.NewService(e.tables.cluster, row)
			e.services[c.Key] = &Service{Service: s, Answers: newShared[uint16](maxAnswersPerService)}
			e.problems("service", c.Key, s.Problems)
		}
	default:
		return e.readPolicy(c)
	}
	return nil
}

func (e *edit) readPolicy(c bus.Change) error {
	r := &e.tables.rows
	parts := bus.Parts(c.Key)
	if len(parts) != 2 {
		// Tables that are not ours, such as nodes, have other keys.
		return nil
	}
	namespace, name := parts[0], parts[1]
	switch c.Table {
	case busv1.Table_TABLE_SERVERS:
		row, err := decode[busv1.Server](c)
		if err != nil {
			return err
		}
		put(r.servers, namespace, name, row)
		e.dirty[namespace] = struct{}{}
	case busv1.Table_TABLE_AUTHORIZATION_POLICIES:
		row, err := decode[busv1.AuthorizationPolicy](c)
		if err != nil {
			return err
		}
		put(r.policies, namespace, name, row)
		e.dirty[namespace] = struct{}{}
	case busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS:
		row, err := decode[busv1.MeshTLSAuthentication](c)
		if err != nil {
			return err
		}
		set(r.meshTLS, c.Key, row)
		e.stale[allow.AuthenticationRef{Namespace: namespace, Name: name}] = struct{}{}
	case busv1.Table_TABLE_NETWORK_AUTHENTICATIONS:
		row, err := decode[busv1.NetworkAuthentication](c)
		if err != nil {
			return err
		}
		set(r.networks, c.Key, row)
		e.stale[allow.AuthenticationRef{Network: true, Namespace: namespace, Name: name}] = struct{}{}
	}
	return nil
}

func (e *edit) problems(kind, key string, problems []string) {
	if len(problems) > 0 {
		e.report.Problems[kind+" "+key] = problems
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
	for ns := range e.dirty {
		out[ns] = t.rows.scope(t.cluster, ns)
		if out[ns] != nil {
			e.problems("namespace", ns, out[ns].Policies.Problems)
		}
	}
	return out
}

// publish shows the cut to readers in one step and lists who must look again.
func (e *edit) publish(scopes map[string]*Scope, complete bool) []topic {
	t := e.tables
	var topics []topic
	t.mu.Lock()
	defer t.mu.Unlock()
	for ns, scope := range scopes {
		set(t.scopes, ns, scope)
		topics = append(topics, namespaceTopic(ns))
	}
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
	for key, s := range e.services {
		topics = append(topics, e.replace(key, s)...)
	}
	t.complete = t.complete || complete
	return topics
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
