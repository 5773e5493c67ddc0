package table

import (
	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

type rowID struct {
	table busv1.Table
	key   string
}

// absent are removals of the rows held that a complete cut does not name,
// endpoints before what they refer to. Today's bus sends one complete cut, to an
// empty table; a second one must not leave ghosts.
func (t *Table) absent(complete []bus.Change) []bus.Change {
	if t.cuts == 0 {
		return nil
	}
	named := make(map[rowID]struct{}, len(complete))
	for _, c := range complete {
		if c.Value != nil {
			named[rowID{c.Table, c.Key}] = struct{}{}
		}
	}
	var gone []bus.Change
	check := func(table busv1.Table, key string) {
		if _, ok := named[rowID{table, key}]; !ok {
			gone = append(gone, bus.Change{Table: table, Key: key})
		}
	}
	for _, s := range t.services {
		for _, e := range s.endpoints {
			check(busv1.Table_TABLE_ENDPOINTS, e.Key)
		}
	}
	for key, s := range t.services {
		if s.row != nil {
			check(busv1.Table_TABLE_SERVICES, key)
		}
	}
	for key, w := range t.workloads {
		if w.row != nil {
			check(busv1.Table_TABLE_WORKLOADS, key)
		}
	}
	for key, tpl := range t.templates {
		if tpl.row != nil {
			check(busv1.Table_TABLE_TEMPLATES, key)
		}
	}
	for key := range t.nodes {
		check(busv1.Table_TABLE_NODES, key)
	}
	for _, in := range t.servers {
		for key := range in {
			check(busv1.Table_TABLE_SERVERS, key)
		}
	}
	for key := range t.profiles {
		check(busv1.Table_TABLE_SERVICE_PROFILES, key)
	}
	for key := range t.splits {
		check(busv1.Table_TABLE_TRAFFIC_SPLITS, key)
	}
	for key := range t.clusters {
		check(busv1.Table_TABLE_CLUSTERS, key)
	}
	return gone
}
