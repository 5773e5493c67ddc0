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
	add := func(table busv1.Table, key string) {
		if _, ok := named[id{table, key}]; !ok {
			out = append(out, bus.Change{Table: table, Key: key})
		}
	}
	for key := range t.workloads {
		add(busv1.Table_TABLE_WORKLOADS, key)
	}
	for key := range t.templates {
		add(busv1.Table_TABLE_TEMPLATES, key)
	}
	for key := range t.services {
		add(busv1.Table_TABLE_SERVICES, key)
	}
	for ns, all := range t.rows.servers {
		for name := range all {
			add(busv1.Table_TABLE_SERVERS, bus.Key(ns, name))
		}
	}
	for ns, all := range t.rows.policies {
		for name := range all {
			add(busv1.Table_TABLE_AUTHORIZATION_POLICIES, bus.Key(ns, name))
		}
	}
	for key := range t.rows.meshTLS {
		add(busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS, key)
	}
	for key := range t.rows.networks {
		add(busv1.Table_TABLE_NETWORK_AUTHENTICATIONS, key)
	}
	slices.SortFunc(out, func(a, b bus.Change) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Key, b.Key))
	})
	return out
}
