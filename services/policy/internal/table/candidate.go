package table

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Candidate reads a row that somebody might write as Kubernetes would: one of an
// object that is there keeps its UID and its age, and a new one is the youngest.
// Only tables that hold what people write are taken.
func (t *Tables) Candidate(c bus.Change, now time.Time) (bus.Change, error) {
	old, ok := t.row(c.Table, c.Key)
	info, known := bus.Info(c.Table)
	if !ok || !known {
		return bus.Change{}, fmt.Errorf("no policy is made of table %v", c.Table)
	}
	if len(c.Value) == 0 {
		return bus.Change{Table: c.Table, Key: c.Key}, nil
	}
	row := info.New()
	if err := proto.Unmarshal(c.Value, row); err != nil {
		return bus.Change{}, fmt.Errorf("reading row %s: %w", c.Key, err)
	}
	m := row.ProtoReflect()
	if field := m.Descriptor().Fields().ByName("created_at"); field != nil && m.Get(field).Int() == 0 {
		m.Set(field, protoreflect.ValueOfInt64(now.Unix()))
	}
	if old != nil {
		from := old.ProtoReflect()
		for _, name := range []protoreflect.Name{"uid", "created_at"} {
			if field := m.Descriptor().Fields().ByName(name); field != nil {
				m.Set(field, from.Get(field))
			}
		}
	}
	return bus.Change{Table: c.Table, Key: c.Key, Value: bus.Encode(row)}, nil
}

// Has says whether an object is there under a key. Like Candidate it is for a fork,
// to which nobody else applies anything.
func (t *Tables) Has(table busv1.Table, key string) bool {
	switch table {
	case busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS:
		return t.rows.meshTLS[key] != nil
	case busv1.Table_TABLE_NETWORK_AUTHENTICATIONS:
		return t.rows.networks[key] != nil
	}
	found, _ := t.row(table, key)
	return found != nil
}

// row finds what is there under a key; ok is false for tables that are not
// written by people, or that no policy is made of.
func (t *Tables) row(table busv1.Table, key string) (found proto.Message, ok bool) {
	r := &t.rows
	switch table {
	case busv1.Table_TABLE_SERVERS:
		return named(r.servers, key), true
	case busv1.Table_TABLE_AUTHORIZATION_POLICIES:
		return named(r.policies, key), true
	case busv1.Table_TABLE_SERVER_AUTHORIZATIONS:
		return named(r.authorizations, key), true
	case busv1.Table_TABLE_RATE_LIMITS:
		return named(r.limits, key), true
	case busv1.Table_TABLE_REFERENCE_GRANTS:
		return named(r.grants, key), true
	case busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS, busv1.Table_TABLE_NETWORK_AUTHENTICATIONS:
		return nil, true // nothing depends on their age
	case busv1.Table_TABLE_EGRESS_NETWORKS:
		if parts := bus.Parts(key); len(parts) == 2 && r.egress[parts[0]][parts[1]] != nil {
			return r.egress[parts[0]][parts[1]].Row, true
		}
		return nil, true
	case busv1.Table_TABLE_ROUTES:
		if old := r.routes.byKey[key]; old != nil {
			return old.Row, true
		}
		return nil, true
	case busv1.Table_TABLE_SERVICES:
		if old := t.services[key]; old != nil {
			return &busv1.Service{Uid: old.UID, CreatedAt: old.CreatedAt}, true
		}
		return nil, true
	}
	return nil, false
}

// named finds a row by a key of namespace and name; nil if there is none.
func named[T any, M message[T]](all map[string]map[string]M, key string) proto.Message {
	if parts := bus.Parts(key); len(parts) == 2 {
		if row := all[parts[0]][parts[1]]; row != nil {
			return row
		}
	}
	return nil
}
