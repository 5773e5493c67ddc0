package table

import (
	"net/netip"
	"slices"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/destination/internal/row"
)

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
