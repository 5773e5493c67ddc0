package table

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/destination/internal/row"
)

// Service is the Service's own row, nil when there is none.
func (t *Table) Service(key string) *row.Service {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if s := t.services[key]; s != nil {
		return s.row
	}
	return nil
}

// Look is a Service's own row with the version that Endpoints would return.
func (t *Table) Look(key string) (s *row.Service, version uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if s := t.services[key]; s != nil {
		return s.row, t.version(Endpoints(key))
	}
	return nil, t.version(Endpoints(key))
}

// Zone is the zone of a node, "" when either is unknown.
func (t *Table) Zone(node string) string {
	if node == "" {
		return ""
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if n := t.nodes[bus.Key(node)]; n != nil {
		return n.Zone.Value()
	}
	return ""
}

// Endpoints joins all that an answer about a Service reads. The version rises
// whenever the facts change, as long as somebody watches the topic Endpoints.
func (t *Table) Endpoints(key string) (facts row.ServiceFacts, version uint64) {
	facts, version = t.join(key)
	// Outside the lock: thousands of endpoints take a millisecond to sort.
	slices.SortFunc(facts.Backends, func(a, b row.Backend) int {
		if a.Endpoint.Slice != b.Endpoint.Slice {
			return strings.Compare(a.Endpoint.Slice.Value(), b.Endpoint.Slice.Value())
		}
		return a.Endpoint.Address.Compare(b.Endpoint.Address)
	})
	return facts, version
}

func (t *Table) join(key string) (facts row.ServiceFacts, version uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	version = t.version(Endpoints(key))
	s := t.services[key]
	if s == nil {
		return facts, version
	}
	facts.Service = s.row
	facts.Backends = make([]row.Backend, 0, len(s.endpoints))
	for _, e := range s.endpoints {
		b := row.Backend{Endpoint: e}
		if e.Workload != "" {
			b.Peer = t.peer(t.workloads[e.Workload])
			facts.Servers = t.addServers(facts.Servers, b.Peer)
		}
		facts.Backends = append(facts.Backends, b)
	}
	return facts, version
}

// Version is the version that Endpoints would return.
func (t *Table) Version(key string) uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.version(Endpoints(key))
}

// version of a topic that nobody watches is always new, so never shared.
func (t *Table) version(name Topic) uint64 {
	if entry := t.topics[name]; entry != nil {
		return entry.version
	}
	return t.cuts
}

// Address joins all that an answer about an IP reads.
func (t *Table) Address(ip netip.Addr) row.AddressFacts {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var facts row.AddressFacts
	byKey := func(a, b *service) int { return strings.Compare(a.key, b.key) }
	for _, s := range slices.SortedFunc(t.clusterIPs.at(ip), byKey) {
		facts.Services = append(facts.Services, s.row)
	}
	collect := func(in index[*workload]) []row.Peer {
		var peers []row.Peer
		for _, w := range slices.SortedFunc(in.at(ip), workloadsByKey) {
			if p := t.peer(w); p.Template != nil {
				peers = append(peers, p)
				facts.Servers = t.addServers(facts.Servers, p)
			}
		}
		return peers
	}
	facts.Pods = collect(t.podIPs)
	facts.Hosts = collect(t.hostIPs)
	facts.Externals = collect(t.external)
	return facts
}

// workloadsByKey orders workloads that have a row, as all that are filed do.
func workloadsByKey(a, b *workload) int { return strings.Compare(a.row.Key, b.row.Key) }

// Pod is a pod and its template; zero while they are not both there.
func (t *Table) Pod(namespace, name string) row.Peer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.peer(t.workloads[bus.Key("pod", namespace, name)])
}

// peer joins a workload to its template; zero until both are there.
func (t *Table) peer(w *workload) row.Peer {
	if w == nil || w.row == nil {
		return row.Peer{}
	}
	tpl := t.template(w.row)
	if tpl == nil {
		return row.Peer{}
	}
	return row.Peer{Workload: w.row, Template: tpl}
}

func (t *Table) addServers(all map[string][]*row.Server, p row.Peer) map[string][]*row.Server {
	if p.Workload == nil {
		return all
	}
	namespace := p.Workload.Namespace
	if _, done := all[namespace]; done || len(t.servers[namespace]) == 0 {
		return all
	}
	if all == nil {
		all = make(map[string][]*row.Server, 1)
	}
	// In order, so that equal sets compare equal.
	for _, key := range slices.Sorted(maps.Keys(t.servers[namespace])) {
		all[namespace] = append(all[namespace], t.servers[namespace][key])
	}
	return all
}
