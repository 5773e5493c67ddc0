package bus

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// TableInfo describes one table of the log.
type TableInfo struct {
	Table busv1.Table
	// Name is the lower-case word for logs and metric labels.
	Name string
	// Owner is the one service that writes the table.
	Owner string
	// Key says what the key is made of.
	Key string
	// New makes an empty message of the table's rows.
	New func() proto.Message
}

// Tables lists every table, in the order in which the rows of one cut are
// handed out: what others refer to comes first, policy before the endpoints it
// protects. Removals are handed out in the opposite order.
var Tables = []TableInfo{
	{busv1.Table_TABLE_CLUSTERS, "clusters", "watcher", "name", func() proto.Message { return new(busv1.Cluster) }},
	{busv1.Table_TABLE_NAMESPACES, "namespaces", "watcher", "name", func() proto.Message { return new(busv1.Namespace) }},
	{busv1.Table_TABLE_NODES, "nodes", "watcher", "name", func() proto.Message { return new(busv1.Node) }},
	{busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS, "meshtlsauthentications", "watcher", "namespace, name", func() proto.Message { return new(busv1.MeshTLSAuthentication) }},
	{busv1.Table_TABLE_NETWORK_AUTHENTICATIONS, "networkauthentications", "watcher", "namespace, name", func() proto.Message { return new(busv1.NetworkAuthentication) }},
	{busv1.Table_TABLE_SERVERS, "servers", "watcher", "namespace, name", func() proto.Message { return new(busv1.Server) }},
	{busv1.Table_TABLE_AUTHORIZATION_POLICIES, "authorizationpolicies", "watcher", "namespace, name", func() proto.Message { return new(busv1.AuthorizationPolicy) }},
	{busv1.Table_TABLE_SERVER_AUTHORIZATIONS, "serverauthorizations", "watcher", "namespace, name", func() proto.Message { return new(busv1.ServerAuthorization) }},
	{busv1.Table_TABLE_RATE_LIMITS, "ratelimits", "watcher", "namespace, name", func() proto.Message { return new(busv1.RateLimit) }},
	{busv1.Table_TABLE_EGRESS_NETWORKS, "egressnetworks", "watcher", "namespace, name", func() proto.Message { return new(busv1.EgressNetwork) }},
	{busv1.Table_TABLE_REFERENCE_GRANTS, "referencegrants", "watcher", "namespace, name", func() proto.Message { return new(busv1.ReferenceGrant) }},
	{busv1.Table_TABLE_ROUTES, "routes", "watcher", "group, kind, namespace, name", func() proto.Message { return new(busv1.Route) }},
	{busv1.Table_TABLE_SERVICE_PROFILES, "serviceprofiles", "watcher", "namespace, name", func() proto.Message { return new(busv1.ServiceProfile) }},
	{busv1.Table_TABLE_TRAFFIC_SPLITS, "trafficsplits", "watcher", "namespace, name", func() proto.Message { return new(busv1.TrafficSplit) }},
	{busv1.Table_TABLE_LINKS, "links", "watcher", "namespace, name", func() proto.Message { return new(busv1.Link) }},
	{busv1.Table_TABLE_TEMPLATES, "templates", "watcher", "namespace, hash", func() proto.Message { return new(busv1.Template) }},
	{busv1.Table_TABLE_SERVICES, "services", "watcher", "namespace, name", func() proto.Message { return new(busv1.Service) }},
	{busv1.Table_TABLE_WORKLOADS, "workloads", "watcher", "kind (pod or external), namespace, name", func() proto.Message { return new(busv1.Workload) }},
	{busv1.Table_TABLE_ENDPOINTS, "endpoints", "watcher", "namespace, service, slice, address", func() proto.Message { return new(busv1.Endpoint) }},
}

// Info finds a table by its number; ok is false for a table of a later version.
func Info(table busv1.Table) (info TableInfo, ok bool) {
	for _, t := range Tables {
		if t.Table == table {
			return t, true
		}
	}
	return TableInfo{}, false
}

// unknownTable is the label of tables that this version doesn't know: metric
// labels stay bounded whatever the bus carries.
const unknownTable = "unknown"

func tableName(table busv1.Table) string {
	if info, ok := Info(table); ok {
		return info.Name
	}
	return unknownTable
}

// tableRank orders tables as Tables does; later versions' tables come last.
func tableRank(table busv1.Table) int {
	for i, t := range Tables {
		if t.Table == table {
			return i
		}
	}
	return len(Tables) + int(table)
}

// Change is one row put or removed.
type Change struct {
	Table busv1.Table
	Key   string
	// Value is the row's message as Encode makes it; nil means removed.
	Value []byte
}

var deterministic = proto.MarshalOptions{Deterministic: true}

// Encode is the one encoding of rows: equal messages have equal bytes, so that
// an unchanged row is never published. It never returns nil, which would mean
// "removed". Strings that are no UTF-8 are mended in m, since no reader could
// decode them.
func Encode(m proto.Message) []byte {
	b, err := deterministic.MarshalAppend(make([]byte, 0, proto.Size(m)), m)
	if err == nil {
		return b
	}
	mend(m.ProtoReflect())
	b, err = deterministic.MarshalAppend(make([]byte, 0, proto.Size(m)), m)
	if err != nil {
		return []byte{}
	}
	return b
}

// mend replaces what is no UTF-8 in every string of m, map keys included.
func mend(m protoreflect.Message) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			values := v.Map()
			values.Range(func(k protoreflect.MapKey, e protoreflect.Value) bool {
				fixed := mendValue(fd.MapValue(), e)
				if key, ok := k.Interface().(string); ok && !utf8.ValidString(key) {
					values.Clear(k)
					k = protoreflect.ValueOfString(strings.ToValidUTF8(key, "\uFFFD")).MapKey()
				}
				values.Set(k, fixed)
				return true
			})
		case fd.IsList():
			for i, list := 0, v.List(); i < list.Len(); i++ {
				list.Set(i, mendValue(fd, list.Get(i)))
			}
		default:
			m.Set(fd, mendValue(fd, v))
		}
		return true
	})
}

func mendValue(fd protoreflect.FieldDescriptor, v protoreflect.Value) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		mend(v.Message())
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(strings.ToValidUTF8(v.String(), "\uFFFD"))
	}
	return v
}

func byRank(a, b busv1.Table) int { return tableRank(a) - tableRank(b) }
