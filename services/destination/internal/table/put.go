package table

import (
	"net/netip"
	"slices"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/destination/internal/row"
)

// The put functions replace one row, keep the indexes true and say what became
// dirty. A nil row is a removal; removing what is not there changes nothing.

func (t *Table) putService(key string, next *row.Service, d *dirty) {
	s := t.services[key]
	if s == nil {
		if next == nil {
			return
		}
		s = &service{}
		t.services[key] = s
	}
	for _, r := range []*row.Service{s.row, next} {
		if r == nil {
			continue
		}
		for _, ip := range r.ClusterIPs {
			d.add(Address(ip))
		}
	}
	if s.row != nil {
		for _, ip := range s.row.ClusterIPs {
			t.clusterIPs.drop(ip, key)
		}
	}
	if next != nil {
		for _, ip := range next.ClusterIPs {
			t.clusterIPs.put(ip, key)
		}
	}
	s.row = next
	t.tidyService(key, s)
	d.add(Service(key))
	d.add(Endpoints(key))
}

// tidyService drops the entry with its last content, so that churn can't leak.
func (t *Table) tidyService(key string, s *service) {
	if s.row == nil && len(s.endpoints) == 0 {
		delete(t.services, key)
	}
}

func (t *Table) putEndpoint(namespace, owner, key string, next *row.Endpoint, d *dirty) {
	s := t.services[owner]
	if s == nil {
		if next == nil {
			return
		}
		s = &service{}
		t.services[owner] = s
	}
	if old := s.endpoints[key]; old != nil {
		t.unlink(namespace, owner, s, old)
		delete(s.endpoints, key)
	}
	if next != nil {
		if s.endpoints == nil {
			s.endpoints = make(map[string]*row.Endpoint, 1)
		}
		s.endpoints[key] = next
		t.link(namespace, owner, s, next)
	}
	t.tidyService(owner, s)
	d.add(Endpoints(owner))
}

// link notes which service an endpoint's workload answers for.
func (t *Table) link(namespace, owner string, s *service, e *row.Endpoint) {
	if e.Workload == row.NoName {
		return
	}
	key := e.Workload.Value()
	w := t.workloads[key]
	if w == nil {
		w = &workload{}
		t.workloads[key] = w
	}
	if i := w.used(owner); i >= 0 {
		w.services[i].endpoints++
	} else {
		w.services = append(w.services, use{owner, 1})
	}
	if workloadNamespace(key) != namespace {
		s.elsewhere++
	}
}

func (t *Table) unlink(namespace, owner string, s *service, e *row.Endpoint) {
	if e.Workload == row.NoName {
		return
	}
	key := e.Workload.Value()
	w := t.workloads[key]
	i := w.used(owner)
	if w.services[i].endpoints--; w.services[i].endpoints == 0 {
		w.services = slices.Delete(w.services, i, i+1)
	}
	if workloadNamespace(key) != namespace {
		s.elsewhere--
	}
	t.tidyWorkload(key, w)
}

// used is where the count for a Service is, -1 if it has none.
func (w *workload) used(owner string) int {
	return slices.IndexFunc(w.services, func(u use) bool { return u.service == owner })
}

// workloadNamespace reads a workload's key: kind, namespace, name.
func workloadNamespace(key string) string {
	if parts := bus.Parts(key); len(parts) == 3 {
		return parts[1]
	}
	return ""
}

func (t *Table) tidyWorkload(key string, w *workload) {
	if w.row == nil && len(w.services) == 0 {
		delete(t.workloads, key)
	}
}

func (t *Table) putWorkload(key string, next *row.Workload, d *dirty) {
	w := t.workloads[key]
	if w == nil {
		if next == nil {
			return
		}
		w = &workload{}
		t.workloads[key] = w
	}
	t.dirtyWorkload(w, d)
	if w.row != nil {
		t.leaveTemplate(w.row.Template.Value(), key)
	}
	w.row = next
	if next != nil {
		t.joinTemplate(next.Template.Value(), key)
	}
	t.reindex(key, w)
	t.dirtyWorkload(w, d)
	t.tidyWorkload(key, w)
}

func (t *Table) joinTemplate(name, key string) {
	tpl := t.templates[name]
	if tpl == nil {
		tpl = &template{}
		t.templates[name] = tpl
	}
	if tpl.users == nil {
		tpl.users = make(map[string]struct{}, 1)
	}
	tpl.users[key] = struct{}{}
}

func (t *Table) leaveTemplate(name, key string) {
	tpl := t.templates[name]
	delete(tpl.users, key)
	if tpl.row == nil && len(tpl.users) == 0 {
		delete(t.templates, name)
	}
}

func (t *Table) putTemplate(key string, next *row.Template, d *dirty) {
	tpl := t.templates[key]
	if tpl == nil {
		if next == nil {
			return
		}
		tpl = &template{}
		t.templates[key] = tpl
	}
	tpl.row = next
	for user := range tpl.users {
		w := t.workloads[user]
		t.dirtyWorkload(w, d)
		t.reindex(user, w)
		t.dirtyWorkload(w, d)
	}
	if next == nil && len(tpl.users) == 0 {
		delete(t.templates, key)
	}
}

// reindex files a workload under the addresses at which it can be found now.
// What is filed depends on its template too (host network, host ports), so it
// runs whichever of the two arrives.
func (t *Table) reindex(key string, w *workload) {
	for _, was := range w.indexed {
		was.in.drop(was.at, key)
	}
	w.indexed = nil
	if w.row == nil {
		return
	}
	file := func(in index, ips []netip.Addr) {
		for _, ip := range ips {
			in.put(ip, key)
			w.indexed = append(w.indexed, indexed{in, ip})
		}
	}
	if w.row.External != nil {
		file(t.external, w.row.IPs)
		return
	}
	tpl := t.template(w.row)
	if tpl == nil {
		return
	}
	if !tpl.HostNetwork {
		file(t.podIPs, w.row.IPs)
	}
	if tpl.HasHostPort() {
		file(t.hostIPs, w.row.HostIPs)
	}
}

func (t *Table) template(w *row.Workload) *row.Template {
	if tpl := t.templates[w.Template.Value()]; tpl != nil {
		return tpl.row
	}
	return nil
}

func (t *Table) putServer(namespace, key string, next *row.Server, d *dirty) {
	old := t.servers[namespace][key]
	// Only an opaque Server has a say in discovery; the others are not kept.
	if next != nil && !next.Opaque {
		next = nil
	}
	if old == nil && next == nil {
		return
	}
	if next == nil {
		delete(t.servers[namespace], key)
		if len(t.servers[namespace]) == 0 {
			delete(t.servers, namespace)
		}
	} else {
		if t.servers[namespace] == nil {
			t.servers[namespace] = make(map[string]*row.Server, 1)
		}
		t.servers[namespace][key] = next
	}
	d.servers(namespace)
}
