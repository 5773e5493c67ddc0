package table

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/allow"
)

// rows are the policy objects as they came. Only the goroutine that applies
// cuts touches them; readers see the scopes made of them.
type rows struct {
	servers  map[string]map[string]*busv1.Server // by namespace, name
	policies map[string]map[string]*busv1.AuthorizationPolicy
	meshTLS  map[string]*busv1.MeshTLSAuthentication // by key
	networks map[string]*busv1.NetworkAuthentication
	// uses counts the workloads of each template, known or not.
	uses map[string]int
}

func newRows() rows {
	return rows{
		servers:  map[string]map[string]*busv1.Server{},
		policies: map[string]map[string]*busv1.AuthorizationPolicy{},
		meshTLS:  map[string]*busv1.MeshTLSAuthentication{},
		networks: map[string]*busv1.NetworkAuthentication{},
		uses:     map[string]int{},
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
func (r *rows) scope(c derive.Cluster, namespace string) *Scope {
	servers, policies := r.servers[namespace], r.policies[namespace]
	if len(servers) == 0 && len(policies) == 0 {
		return nil
	}
	return &Scope{
		Policies: allow.Resolve(c, slices.Collect(maps.Values(servers)), slices.Collect(maps.Values(policies)), r),
		Answers:  newShared[Question](maxAnswersPerScope),
	}
}

// put stores a row under its namespace, or takes it out if it is nil.
func put[T any](all map[string]map[string]*T, namespace, key string, row *T) {
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

// decode reads the row of a change; nil if the change removes it.
func decode[T any, M interface {
	*T
	proto.Message
}](c bus.Change) (M, error) {
	if c.Value == nil {
		return nil, nil //nolint:nilnil // nil is the row's absence
	}
	m := M(new(T))
	if err := proto.Unmarshal(c.Value, m); err != nil {
		return nil, fmt.Errorf("reading row %s: %w", c.Key, err)
	}
	return m, nil
}
