package table

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/allow"
	"github.com/weftmesh/weft/services/policy/internal/derive/egress"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// byName holds rows by namespace and name.
type byName[T any] map[string]map[string]*T

// rows are the objects as they came, and what follows from them. Only the
// goroutine that applies cuts touches them; readers see what is made of them.
type rows struct {
	servers        byName[busv1.Server]
	policies       byName[busv1.AuthorizationPolicy]
	authorizations byName[busv1.ServerAuthorization]
	limits         byName[busv1.RateLimit]
	grants         byName[busv1.ReferenceGrant]
	egress         byName[egress.Network]
	facts          map[string]*accept.Service // by key
	meshTLS        map[string]*busv1.MeshTLSAuthentication
	networks       map[string]*busv1.NetworkAuthentication
	// uses counts the workloads of each template, known or not.
	uses   map[string]int
	routes routes
}

func newRows() rows {
	return rows{
		servers:        byName[busv1.Server]{},
		policies:       byName[busv1.AuthorizationPolicy]{},
		authorizations: byName[busv1.ServerAuthorization]{},
		limits:         byName[busv1.RateLimit]{},
		grants:         byName[busv1.ReferenceGrant]{},
		egress:         byName[egress.Network]{},
		facts:          map[string]*accept.Service{},
		meshTLS:        map[string]*busv1.MeshTLSAuthentication{},
		networks:       map[string]*busv1.NetworkAuthentication{},
		uses:           map[string]int{},
		routes:         newRoutes(),
	}
}

// MeshTLS and Network make rows the place where policies look references up.
func (r *rows) MeshTLS(namespace, name string) *busv1.MeshTLSAuthentication {
	return r.meshTLS[bus.Key(namespace, name)]
}

// Network finds a network authentication.
func (r *rows) Network(namespace, name string) *busv1.NetworkAuthentication {
	return r.networks[bus.Key(namespace, name)]
}

// HasServer and what follows make rows the world in which routes are judged.
func (r *rows) HasServer(namespace, name string) bool { return r.servers[namespace][name] != nil }

// Service finds what routes need to know of a Service.
func (r *rows) Service(namespace, name string) *accept.Service {
	return r.facts[bus.Key(namespace, name)]
}

// Egress finds an egress network.
func (r *rows) Egress(namespace, name string) *egress.Network { return r.egress[namespace][name] }

// Grants lists what a namespace permits others.
func (r *rows) Grants(namespace string) []*busv1.ReferenceGrant {
	return slices.Collect(maps.Values(r.grants[namespace]))
}

// use counts a workload that begins or ends to use a template.
func (r *rows) use(template string, by int) {
	if template == "" {
		return
	}
	if n := r.uses[template] + by; n > 0 {
		r.uses[template] = n
		return
	}
	delete(r.uses, template) // a key kept at zero would leak with every rollout
}

// scope joins the rows of one namespace; nil if there are none.
func (r *rows) scope(c derive.Cluster, namespace string, limits []accept.LimitVerdict) *Scope {
	objects := allow.Objects{
		Servers:        slices.Collect(maps.Values(r.servers[namespace])),
		Policies:       slices.Collect(maps.Values(r.policies[namespace])),
		Authorizations: slices.Collect(maps.Values(r.authorizations[namespace])),
		Routes:         map[string][]*route.Route{},
	}
	if len(objects.Servers)+len(objects.Policies)+len(objects.Authorizations) == 0 {
		return nil
	}
	var refused []string
	for _, s := range objects.Servers {
		for _, v := range r.routes.verdicts[route.Parent{Kind: route.Server, Namespace: namespace, Name: s.GetName()}] {
			if v.Accepted.Holds {
				objects.Routes[s.GetName()] = append(objects.Routes[s.GetName()], v.Route)
				continue
			}
			refused = append(refused, fmt.Sprintf("%v on %v: %s: %s", v.Route, v.Parent, v.Accepted.Reason, v.Accepted.Message))
		}
	}
	for _, v := range limits {
		if v.Accepted.Holds {
			objects.Limits = append(objects.Limits, v.Row)
			continue
		}
		refused = append(refused, fmt.Sprintf("rate limit %s: %s: %s", v.Row.GetName(), v.Accepted.Reason, v.Accepted.Message))
	}
	slices.Sort(refused)
	policies := allow.Resolve(c, objects, r)
	return &Scope{
		Policies: policies,
		Ignored:  slices.Concat(policies.Problems, refused),
		Answers:  newShared[Question](maxAnswersPerScope),
	}
}

// put stores a row under its namespace, or takes it out if it is nil.
func (all byName[T]) put(namespace, key string, row *T) {
	if row == nil {
		delete(all[namespace], key)
		if len(all[namespace]) == 0 {
			delete(all, namespace)
		}
		return
	}
	if all[namespace] == nil {
		all[namespace] = map[string]*T{}
	}
	all[namespace][key] = row
}

// keys calls add with the key of every row.
func (all byName[T]) keys(add func(key string)) {
	for ns, rows := range all {
		for name := range rows {
			add(bus.Key(ns, name))
		}
	}
}

// message is a row's type, generated.
type message[T any] interface {
	*T
	proto.Message
}

// decode reads the row of a change; nil if the change removes it.
func decode[T any, M message[T]](c bus.Change) (M, error) {
	if c.Value == nil {
		return nil, nil //nolint:nilnil // nil is the row's absence
	}
	m := M(new(T))
	if err := proto.Unmarshal(c.Value, m); err != nil {
		return nil, fmt.Errorf("reading row %s: %w", c.Key, err)
	}
	return m, nil
}
