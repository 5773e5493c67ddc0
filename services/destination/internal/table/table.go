// Package table holds the rows a replica knows, joined by indexes, and wakes
// exactly the streams whose answer could have changed.
//
// One goroutine calls Apply. Any number may read and watch; what a reader gets
// is one consistent cut made of immutable rows, and it must not change them.
package table

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/destination/internal/row"
)

// ErrUnsynced means that the first complete snapshot has not arrived: what is
// missing is unknown, not absent.
var ErrUnsynced = errors.New("the mesh's state has not arrived yet")

// Table is the replica's copy of the log. Make one with New.
type Table struct {
	mu sync.RWMutex
	// synced is set by the first complete cut and never unset: a stale copy is
	// still the best there is.
	synced bool
	// cuts counts what was applied; it is the version of every answer.
	cuts uint64

	services  map[string]*service
	workloads map[string]*workload
	templates map[string]*template
	nodes     map[string]*row.Node
	servers   map[string]map[string]*row.Server // namespace, key
	profiles  map[string]*row.ServiceProfile
	splits    map[string]*row.TrafficSplit
	apexes    map[string][]string // keys of splits by the key of their Service
	clusters  map[string]*row.Cluster

	clusterIPs index // of service keys
	podIPs     index // of workload keys, pods that own the IP
	hostIPs    index // of workload keys, pods with a host port
	external   index // of workload keys, ExternalWorkloads

	topics map[Topic]*topic
}

// service is a Service, its endpoints, or both: they may arrive in any order.
type service struct {
	row       *row.Service
	endpoints map[string]*row.Endpoint
	// elsewhere counts endpoints whose workload is in another namespace, so that
	// a Server's change there is not missed.
	elsewhere int
}

// workload is a workload, or only the endpoints that name it.
type workload struct {
	row *row.Workload
	// services are those that answer with this workload.
	services []use
	// What the indexes hold for it.
	indexed []indexed
}

// use counts the endpoints of one Service that name a workload.
type use struct {
	service   string
	endpoints int
}

type template struct {
	row *row.Template
	// users are the keys of the workloads made of it.
	users map[string]struct{}
}

// index finds keys by address. Nearly every address has one key, and the pods of
// one node are some hundred: a slice is a sixth of a map.
type index map[netip.Addr][]string

type indexed struct {
	in index
	at netip.Addr
}

func (x index) put(ip netip.Addr, key string) {
	if !slices.Contains(x[ip], key) {
		x[ip] = append(x[ip], key)
	}
}

// drop removes an entry, and the address with its last one.
func (x index) drop(ip netip.Addr, key string) {
	i := slices.Index(x[ip], key)
	switch {
	case i < 0:
	case len(x[ip]) == 1:
		delete(x, ip)
	default:
		x[ip] = slices.Delete(x[ip], i, i+1)
	}
}

// sorted is the keys at an address, in order.
func (x index) sorted(ip netip.Addr) []string { return slices.Sorted(slices.Values(x[ip])) }

// New makes an empty table.
func New() *Table {
	return &Table{
		services:   make(map[string]*service),
		workloads:  make(map[string]*workload),
		templates:  make(map[string]*template),
		nodes:      make(map[string]*row.Node),
		servers:    make(map[string]map[string]*row.Server),
		profiles:   make(map[string]*row.ServiceProfile),
		splits:     make(map[string]*row.TrafficSplit),
		apexes:     make(map[string][]string),
		clusters:   make(map[string]*row.Cluster),
		clusterIPs: make(index),
		podIPs:     make(index),
		hostIPs:    make(index),
		external:   make(index),
		topics:     make(map[Topic]*topic),
	}
}

// Synced is nil once the first complete snapshot has been applied.
func (t *Table) Synced() error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.synced {
		return ErrUnsynced
	}
	return nil
}

// Sizes counts the rows of each table, for metrics.
func (t *Table) Sizes() map[string]int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	sizes := map[string]int{
		"nodes": len(t.nodes), "services": 0, "endpoints": 0, "workloads": 0, "templates": 0, "servers": 0,
		"serviceprofiles": len(t.profiles), "trafficsplits": len(t.splits),
	}
	for _, s := range t.services {
		if s.row != nil {
			sizes["services"]++
		}
		sizes["endpoints"] += len(s.endpoints)
	}
	for _, w := range t.workloads {
		if w.row != nil {
			sizes["workloads"]++
		}
	}
	for _, tpl := range t.templates {
		if tpl.row != nil {
			sizes["templates"]++
		}
	}
	for _, in := range t.servers {
		sizes["servers"] += len(in)
	}
	return sizes
}

// ServiceKey is the key of a Service's row.
func ServiceKey(namespace, name string) string { return bus.Key(namespace, name) }
