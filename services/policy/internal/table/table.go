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
	"slices"
	"sync"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/allow"
	"github.com/weftmesh/weft/services/policy/internal/derive/egress"
	"github.com/weftmesh/weft/services/policy/internal/derive/outbound"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// ErrIncomplete means that the first complete state has not arrived: nothing
// may be answered yet, since unknown is not the same as absent.
var ErrIncomplete = errors.New("the first complete state has not arrived")

// Tables is the state after the last cut.
type Tables struct {
	cluster derive.Cluster
	rows    rows // of the one goroutine that calls Apply
	subs    subscriptions
	// applying is held by Apply, and by Fork while it copies what Apply writes.
	applying sync.Mutex

	mu        sync.RWMutex
	complete  bool
	workloads map[string]*allow.Workload // by key
	templates map[string]*allow.Template // by key
	scopes    map[string]*Scope          // by namespace
	services  map[string]*Service        // by key
	addresses map[netip.Addr][]*Service  // best owner first
	egress    map[string][]*Egress       // by namespace
	none      *Scope                     // of namespaces that say nothing

	// What statuses are made of.
	position Position
	routes   map[string]*route.Route
	verdicts map[route.Parent][]accept.Verdict
	limits   map[string][]accept.LimitVerdict // by namespace
}

// Scope is what a namespace says about its workloads, with the answers that
// were made from it. A change makes a new one.
type Scope struct {
	Policies *allow.Policies
	// Ignored is what authorises nothing or is left out, with the reason, in words.
	Ignored []string
	Answers *Shared[Question]
}

// Question is what two workloads must have in common to share an answer.
type Question struct {
	Template *allow.Template
	External bool   // an ExternalWorkload, not a pod
	Labels   string // the workload's own, encoded
	Port     uint16
}

// Ask is what two questions about one target must have in common to share an
// answer.
type Ask struct {
	Port uint16
	// Source is the client's namespace if it has routes of its own there
	// (accept.Attached.Source).
	Source string
	// Address is where the client wants to go, for an egress network.
	Address netip.Addr
	// Complete is asked through our own API.
	Complete bool
}

// Service is a Service with its accepted routes and the answers that were made
// from it.
type Service struct {
	*outbound.Service
	Routes  *accept.Attached
	Answers *Shared[Ask]
}

// Egress is an EgressNetwork with its accepted routes and the answers that were
// made from it. The Network is another value exactly if the object changed.
type Egress struct {
	*egress.Network
	Routes  *accept.Attached
	Answers *Shared[Ask]
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
		egress:    map[string][]*Egress{},
		routes:    map[string]*route.Route{},
		verdicts:  map[route.Parent][]accept.Verdict{},
		limits:    map[string][]accept.LimitVerdict{},
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
	// Position is how far the log had been read.
	Position Position
}

// Workload finds who is asked about.
func (t *Tables) Workload(w derive.Workload) (Subject, error) {
	key := workloadKey(w)
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.complete {
		return Subject{}, ErrIncomplete
	}
	s := Subject{Workload: t.workloads[key], Scope: t.scopes[w.Namespace], Position: t.position}
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

// Target is what an address belongs to: a Service, else an egress network, else
// neither.
type Target struct {
	Service *Service
	Egress  *Egress
	// Own are the egress networks of the client's namespace, Global those for
	// everybody, whether they hold the address or not.
	Own, Global []*Egress
}

// Target finds what an address belongs to for clients of a namespace. A
// namespace with egress networks of its own does not look at the global ones,
// whether one of its own contains the address or not (spec/destination-policy.md
// §9.5).
func (t *Tables) Target(a netip.Addr, source string) (Target, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.complete {
		return Target{}, ErrIncomplete
	}
	if owners := t.addresses[a.Unmap()]; len(owners) > 0 {
		return Target{Service: owners[0]}, nil
	}
	out := Target{Own: t.egress[source], Global: t.egress[t.cluster.EgressNamespace]}
	candidates := out.Own
	if len(candidates) == 0 {
		candidates = out.Global
	}
	networks := make([]*egress.Network, len(candidates))
	for i, c := range candidates {
		networks[i] = c.Network
	}
	found := egress.Select(t.cluster, networks, a)
	if i := slices.Index(networks, found); found != nil {
		out.Egress = candidates[i]
	}
	return out, nil
}

func workloadKey(w derive.Workload) string {
	if w.External {
		return bus.Key("external", w.Namespace, w.Name)
	}
	return bus.Key("pod", w.Namespace, w.Name)
}
