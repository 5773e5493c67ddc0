package table

import (
	"maps"
	"slices"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/allow"
	"github.com/weftmesh/weft/services/policy/internal/derive/egress"
	"github.com/weftmesh/weft/services/policy/internal/derive/outbound"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// read digests one change. Tables that no answer depends on are passed over.
func (e *edit) read(c bus.Change) error {
	switch c.Table {
	case busv1.Table_TABLE_ENDPOINTS, busv1.Table_TABLE_NODES:
		// Most rows of a cluster, and no answer reads them.
	case busv1.Table_TABLE_TEMPLATES:
		row, err := decode[busv1.Template](c)
		if err != nil {
			return err
		}
		e.templates[c.Key] = nil
		if row != nil {
			e.templates[c.Key] = allow.NewTemplate(row)
			e.problems("template", c.Key, e.templates[c.Key].Problems)
		}
	case busv1.Table_TABLE_ROUTES:
		row, err := decode[busv1.Route](c)
		if err != nil {
			return err
		}
		var now *route.Route
		if row != nil {
			now = route.New(row)
		}
		e.touch(e.tables.rows.routes.put(c.Key, now)...)
		e.changed[c.Key] = now
	default:
		// Tables that are not ours have other keys.
		if parts := bus.Parts(c.Key); len(parts) == 2 {
			return e.readNamed(c, parts[0], parts[1])
		}
	}
	return nil
}

// readNamed digests what is known by namespace and name.
func (e *edit) readNamed(c bus.Change, namespace, name string) error {
	r := &e.tables.rows
	dirty := func() { e.dirty[namespace] = struct{}{} }
	switch c.Table {
	case busv1.Table_TABLE_SERVICES:
		return e.readService(c, namespace, name)
	case busv1.Table_TABLE_EGRESS_NETWORKS:
		return e.readEgress(c, namespace, name)
	case busv1.Table_TABLE_SERVERS:
		return keep(c, r.servers, namespace, name, func() {
			e.touch(route.Parent{Kind: route.Server, Namespace: namespace, Name: name})
		})
	case busv1.Table_TABLE_AUTHORIZATION_POLICIES:
		return keep(c, r.policies, namespace, name, dirty)
	case busv1.Table_TABLE_SERVER_AUTHORIZATIONS:
		return keep(c, r.authorizations, namespace, name, dirty)
	case busv1.Table_TABLE_RATE_LIMITS:
		return keep(c, r.limits, namespace, name, dirty)
	case busv1.Table_TABLE_REFERENCE_GRANTS:
		return keep(c, r.grants, namespace, name, func() {
			e.touch(r.routes.dependents(use{grants: true, key: namespace})...)
		})
	case busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS:
		row, err := decode[busv1.MeshTLSAuthentication](c)
		if err != nil {
			return err
		}
		set(r.meshTLS, c.Key, row)
		e.stale[allow.AuthenticationRef{Namespace: namespace, Name: name}] = struct{}{}
	case busv1.Table_TABLE_NETWORK_AUTHENTICATIONS:
		row, err := decode[busv1.NetworkAuthentication](c)
		if err != nil {
			return err
		}
		set(r.networks, c.Key, row)
		e.stale[allow.AuthenticationRef{Network: true, Namespace: namespace, Name: name}] = struct{}{}
	}
	return nil
}

func (e *edit) readService(c bus.Change, namespace, name string) error {
	row, err := decode[busv1.Service](c)
	if err != nil {
		return err
	}
	r := &e.tables.rows
	var facts *accept.Service
	e.services[c.Key] = nil
	if row != nil {
		facts = accept.NewService(row)
		s := outbound.NewService(e.tables.cluster, row)
		e.services[c.Key] = &Service{Service: s}
		e.problems("service", c.Key, s.Problems)
	}
	old := r.facts[c.Key]
	if old == nil || facts == nil || old.Addressed != facts.Addressed || old.External != facts.External || !maps.Equal(old.Ports, facts.Ports) {
		e.touch(r.routes.dependents(use{key: c.Key})...)
	}
	set(r.facts, c.Key, facts)
	e.touch(route.Parent{Kind: route.Service, Namespace: namespace, Name: name})
	return nil
}

func (e *edit) readEgress(c bus.Change, namespace, name string) error {
	row, err := decode[busv1.EgressNetwork](c)
	if err != nil {
		return err
	}
	var network *egress.Network
	if row != nil {
		network = egress.New(e.tables.cluster, row)
		e.problems("egress network", c.Key, slices.Concat(network.Problems, outbound.EgressProblems(e.tables.cluster, network)))
	}
	e.tables.rows.egress.put(namespace, name, network)
	e.touch(route.Parent{Kind: route.EgressNetwork, Namespace: namespace, Name: name})
	return nil
}

// keep stores a row that needs no digesting and calls changed.
func keep[T any, M message[T]](c bus.Change, all byName[T], namespace, name string, changed func()) error {
	row, err := decode[T, M](c)
	if err != nil {
		return err
	}
	all.put(namespace, name, row)
	changed()
	return nil
}
