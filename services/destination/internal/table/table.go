// Package table holds the rows a replica knows, joined by indexes, and wakes
// exactly the streams whose answer could have changed.
//
// One goroutine calls Apply. Any number may read and watch; what a reader gets
// is one consistent cut made of immutable rows, and it must not change them.
package table

import (
	"errors"
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

	clusterIPs index[*service]
	podIPs     index[*workload] // pods that own the IP
	hostIPs    index[*workload] // pods with a host port
	external   index[*workload] // ExternalWorkloads

	topics map[Topic]*topic
}

// service is a Service, its endpoints, or both: they may arrive in any order.
type service struct {
	key       string
	row       *row.Service
	endpoints []*row.Endpoint // in the order of their keys
	// commons are what the last endpoints said, for the next ones to share.
	commons []*row.Common
	// elsewhere counts endpoints whose workload is in another namespace, so that
	// a Server's change there is not missed.
	elsewhere int
}

// commonsKept is for a slice whose hints name each of a few zones in turn.
const commonsKept = 4

// workload is a workload, or only the endpoints that name it. There are as many
// as pods, so nothing is kept that its row tells.
type workload struct {
	row *row.Workload
	// first and more are the Services that answer with this workload; nearly
	// always there is one, and first has no service when there is none.
	first use
	more  []use
	// before and after are its neighbours among the users of its template.
	before, after *workload
}

// use counts the endpoints of one Service that name a workload.
type use struct {
	service   *service
	endpoints int
}

type template struct {
	row *row.Template
	// users is the first of the workloads made of it: a list, which costs no more
	// for twenty thousand to be joined and left than for one.
	users *workload
}

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
		clusterIPs: newIndex[*service](),
		podIPs:     newIndex[*workload](),
		hostIPs:    newIndex[*workload](),
		external:   newIndex[*workload](),
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
