package table

import (
	"net/netip"
	"slices"
	"strings"

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
		s = &service{key: key}
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
			t.clusterIPs.drop(ip, s)
		}
	}
	if next != nil {
		for _, ip := range next.ClusterIPs {
			t.clusterIPs.put(ip, s)
		}
	}
	s.row = next
	t.tidyService(s)
	d.add(Service(key))
	d.add(Endpoints(key))
}

// tidyService drops the entry with its last content, so that churn can't leak.
func (t *Table) tidyService(s *service) {
	if s.row == nil && len(s.endpoints) == 0 {
		delete(t.services, s.key)
	}
}

func (t *Table) putEndpoint(namespace, owner, key string, next *row.Endpoint, d *dirty) {
	s := t.services[owner]
	if s == nil {
		if next == nil {
			return
		}
		s = &service{key: owner}
		t.services[owner] = s
	}
	i, found := s.find(key)
	if found {
		t.unlink(namespace, s, s.endpoints[i])
	}
	switch {
	case next == nil && found:
		s.endpoints = slices.Delete(s.endpoints, i, i+1)
	case next == nil:
	case found:
		next.Key = s.endpoints[i].Key // the log keeps the first of equal ones, too
		s.endpoints[i] = next
	default:
		s.endpoints = slices.Insert(s.endpoints, i, next)
	}
	if next != nil {
		next.Common = s.share(next.Common)
		t.link(namespace, s, next)
	}
	t.tidyService(s)
	d.add(Endpoints(owner))
}

// find is where the endpoint of that key is or would be. A large cut comes in
// order, so it appends; one change among twenty thousand moves 160 KB at most.
func (s *service) find(key string) (int, bool) {
	return slices.BinarySearchFunc(s.endpoints, key, func(e *row.Endpoint, key string) int { return strings.Compare(e.Key, key) })
}

// share finds what another endpoint said already, or keeps c for the next.
func (s *service) share(c *row.Common) *row.Common {
	for _, held := range s.commons {
		if held.Equal(c) {
			return held
		}
	}
	if len(s.commons) == commonsKept {
		s.commons = slices.Delete(s.commons, 0, 1)
	}
	s.commons = append(s.commons, c)
	return c
}

// link notes which service an endpoint's workload answers for. The endpoint is
// new, so its name of the workload can still become the workload's own.
func (t *Table) link(namespace string, s *service, e *row.Endpoint) {
	if e.Workload == "" {
		return
	}
	w := t.workloads[e.Workload]
	switch {
	case w == nil:
		w = &workload{}
		t.workloads[e.Workload] = w
	case w.row != nil:
		e.Workload = w.row.Key
	}
	w.use(s)
	if workloadNamespace(e.Workload) != namespace {
		s.elsewhere++
	}
}

func (t *Table) unlink(namespace string, s *service, e *row.Endpoint) {
	if e.Workload == "" {
		return
	}
	w := t.workloads[e.Workload]
	w.unuse(s)
	if workloadNamespace(e.Workload) != namespace {
		s.elsewhere--
	}
	t.tidyWorkload(e.Workload, w)
}

// used is where the endpoints of a Service are counted; nil if it has none.
func (w *workload) used(s *service) *use {
	if w.first.service == s {
		return &w.first
	}
	if i := slices.IndexFunc(w.more, func(u use) bool { return u.service == s }); i >= 0 {
		return &w.more[i]
	}
	return nil
}

func (w *workload) use(s *service) {
	u := w.used(s)
	switch {
	case u != nil:
		u.endpoints++
	case w.first.service == nil:
		w.first = use{s, 1}
	default:
		w.more = append(w.more, use{s, 1})
	}
}

func (w *workload) unuse(s *service) {
	u := w.used(s)
	if u.endpoints--; u.endpoints > 0 {
		return
	}
	if n := len(w.more); n > 0 {
		*u = w.more[n-1] // its place is taken by the last
		w.more = slices.Delete(w.more, n-1, n)
		return
	}
	w.first = use{}
}

// workloadNamespace reads a workload's key: kind, namespace, name.
func workloadNamespace(key string) string {
	if parts := bus.Parts(key); len(parts) == 3 {
		return parts[1]
	}
	return ""
}

func (t *Table) tidyWorkload(key string, w *workload) {
	if w.row == nil && w.first.service == nil {
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
	t.unfile(w, d)
	if w.row != nil {
		t.leaveTemplate(w)
	}
	w.row = next
	if next != nil {
		t.joinTemplate(w)
	}
	t.file(w, d)
	t.tidyWorkload(key, w)
}

func (t *Table) joinTemplate(w *workload) {
	name := w.row.Template.Value()
	tpl := t.templates[name]
	if tpl == nil {
		tpl = &template{}
		t.templates[name] = tpl
	}
	if w.after = tpl.users; w.after != nil {
		w.after.before = w
	}
	tpl.users = w
}

func (t *Table) leaveTemplate(w *workload) {
	name := w.row.Template.Value()
	tpl := t.templates[name]
	if w.before == nil {
		tpl.users = w.after
	} else {
		w.before.after = w.after
	}
	if w.after != nil {
		w.after.before = w.before
	}
	w.before, w.after = nil, nil
	if tpl.row == nil && tpl.users == nil {
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
	for w := tpl.users; w != nil; w = w.after {
		t.unfile(w, d)
	}
	tpl.row = next
	for w := tpl.users; w != nil; w = w.after {
		t.file(w, d)
	}
	if next == nil && tpl.users == nil {
		delete(t.templates, key)
	}
}

// file puts a workload under the addresses at which it can be found now, and
// marks what shows it. What is filed depends on its template too (host network,
// host ports), so it runs whichever of the two arrives, and unfile before it.
func (t *Table) file(w *workload, d *dirty) {
	t.seen(w, d, index[*workload].put)
}

// unfile undoes file; neither the workload nor its template has changed since.
func (t *Table) unfile(w *workload, d *dirty) {
	t.seen(w, d, index[*workload].drop)
}

// seen does one thing at every address of a workload, and marks these and the
// Services that answer with it.
func (t *Table) seen(w *workload, d *dirty, do func(index[*workload], netip.Addr, *workload)) {
	if w.first.service != nil {
		d.add(Endpoints(w.first.service.key))
	}
	for _, u := range w.more {
		d.add(Endpoints(u.service.key))
	}
	if w.row == nil {
		return
	}
	each := func(in index[*workload], ips []netip.Addr) {
		for _, ip := range ips {
			do(in, ip, w)
			d.add(Address(ip))
		}
	}
	if w.row.External != nil {
		each(t.external, w.row.IPs)
		return
	}
	tpl := t.template(w.row)
	if tpl == nil {
		return
	}
	if !tpl.HostNetwork {
		each(t.podIPs, w.row.IPs)
	}
	if tpl.HasHostPort() {
		each(t.hostIPs, w.row.HostIPs.All())
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
