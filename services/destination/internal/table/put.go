package table

import (
	"slices"
	"strings"

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
