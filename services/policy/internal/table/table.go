// Package table holds what a policy server knows of the cluster.
//
// One goroutine calls Apply, a cut at a time; any number may read. What is
// handed out never changes, and everything that one call hands out belongs to
// one cut. A reader that must not miss a change subscribes (Watch) before it
// reads.
package table

import (
	"errors"
	"net/netip"
	"sync"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/allow"
	"github.com/weftmesh/weft/services/policy/internal/derive/outbound"
)

// ErrIncomplete means that the first complete state has not arrived: nothing
// may be answered yet, since unknown is not the same as absent.
var ErrIncomplete = errors.New("the first complete state has not arrived")

// Tables is the state after the last cut.
type Tables struct {
	cluster derive.Cluster
	rows    rows // of the one goroutine that calls Apply
	subs    subscriptions

	mu        sync.RWMutex
	complete  bool
	workloads map[string]*allow.Workload // by key
	templates map[string]*allow.Template // by key
	scopes    map[string]*Scope          // by namespace
	services  map[string]*Service        // by key
	addresses map[netip.Addr][]*Service  // best owner first
	none      *Scope                     // of namespaces that say nothing
}

// Scope is what a namespace says about its workloads, with the answers that
// were made from it. A change makes a new one.
type Scope struct {
	Policies *allow.Policies
	Answers  *Shared[Question]
}

// Question is what two workloads must have in common to share an answer.
type Question struct {
	Template *allow.Template
	External bool   // an ExternalWorkload, not a pod
	Labels   string // the workload's own, encoded
	Port     uint16
}

// Service is a Service with the answers that were made from it.
type Service struct {
	*outbound.Service
	Answers *Shared[uint16]
}

// New makes empty tables, which answer nothing until the first complete cut.
func New(cluster derive.Cluster) *Tables {
	return &Tables{
		cluster:   cluster,
		rows:      newRows(),
		workloads: map[string]*allow.Workload{},
		templates: map[string]*allow.Template{},
		scopes:    map[string]*Scope{},
		services:  map[string]*Service{},
		addresses: map[netip.Addr][]*Service{},
		none:      &Scope{Answers: newShared[Question](maxAnswersPerScope)},
	}
}

// Synced is nil once the first complete state is in.
func (t *Tables) Synced() error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.complete {
		return ErrIncomplete
	}
	return nil
}

// Subject is a workload and all that its answers depend on, of one cut.
type Subject struct {
	// Workload is nil if there is none.
	Workload *allow.Workload
	// Template is nil if it has not arrived yet.
	Template *allow.Template
	Scope    *Scope
}

// Workload finds who is asked about.
func (t *Tables) Workload(w derive.Workload) (Subject, error) {
	key := workloadKey(w)
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.complete {
		return Subject{}, ErrIncomplete
	}
	s := Subject{Workload: t.workloads[key], Scope: t.scopes[w.Namespace]}
	if s.Scope == nil {
		s.Scope = t.none
	}
	if s.Workload != nil {
		s.Template = t.templates[s.Workload.TemplateKey]
	}
	return s, nil
}

// Service finds a Service by name; nil if there is none.
func (t *Tables) Service(namespace, name string) (*Service, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.complete {
		return nil, ErrIncomplete
	}
	return t.services[bus.Key(namespace, name)], nil
}

// Owner finds the Service that has this cluster IP; nil if none has.
func (t *Tables) Owner(a netip.Addr) (*Service, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.complete {
		return nil, ErrIncomplete
	}
	if owners := t.addresses[a.Unmap()]; len(owners) > 0 {
		return owners[0], nil
	}
	return nil, nil //nolint:nilnil // an address without an owner is an answer
}

func workloadKey(w derive.Workload) string {
	if w.External {
		return bus.Key("external", w.Namespace, w.Name)
	}
	return bus.Key("pod", w.Namespace, w.Name)
}
