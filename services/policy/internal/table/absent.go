package table

import (
	"cmp"
	"slices"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// absent lists removals of all that a complete cut does not name.
func (t *Tables) absent(changes []bus.Change) []bus.Change {
	type id struct {
		table busv1.Table
		key   string
	}
	named := make(map[id]struct{}, len(changes))
	for _, c := range changes {
		if c.Value != nil {
			named[id{c.Table, c.Key}] = struct{}{}
		}
	}
	var out []bus.Change
	of := func(table busv1.Table) func(string) {
		return func(key string) {
			if _, ok := named[id{table, key}]; !ok {
				out = append(out, bus.Change{Table: table, Key: key})
			}
		}
	}
	r := &t.rows
	each(t.workloads, of(busv1.Table_TABLE_WORKLOADS))
	each(t.templates, of(busv1.Table_TABLE_TEMPLATES))
	each(t.services, of(busv1.Table_TABLE_SERVICES))
	each(r.routes.byKey, of(busv1.Table_TABLE_ROUTES))
	each(r.meshTLS, of(busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS))
	each(r.networks, of(busv1.Table_TABLE_NETWORK_AUTHENTICATIONS))
	r.servers.keys(of(busv1.Table_TABLE_SERVERS))
	r.policies.keys(of(busv1.Table_TABLE_AUTHORIZATION_POLICIES))
	r.authorizations.keys(of(busv1.Table_TABLE_SERVER_AUTHORIZATIONS))
	r.limits.keys(of(busv1.Table_TABLE_RATE_LIMITS))
	r.egress.keys(of(busv1.Table_TABLE_EGRESS_NETWORKS))
	r.grants.keys(of(busv1.Table_TABLE_REFERENCE_GRANTS))
	slices.SortFunc(out, func(a, b bus.Change) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Key, b.Key))
	})
	return out
}

func each[V any](rows map[string]V, add func(key string)) {
	for key := range rows {
		add(key)
	}
}
