// Package candidate makes of one object the rows that the watcher would write if
// it were applied, for those who want to know what it would do before that.
//
// It holds the watcher's rules for those who have manifests instead of a cluster:
// the command line. Objects are judged one at a time. It is pure.
package candidate

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// ErrOther means that no policy is made of such an object.
var ErrOther = errors.New("no policy is made of it")

// Object is an object with its rows.
type Object struct {
	// Group is "" for the core group.
	Group, Kind, Namespace, Name string
	// Rows are what the log would hold of it; without a value, what would leave it.
	Rows []bus.Change
}

// tables says which row each kind makes: one, named as the object is.
var tables = map[shape.Kind]busv1.Table{
	shape.Servers:                busv1.Table_TABLE_SERVERS,
	shape.AuthorizationPolicies:  busv1.Table_TABLE_AUTHORIZATION_POLICIES,
	shape.MeshTLSAuthentications: busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS,
	shape.NetworkAuthentications: busv1.Table_TABLE_NETWORK_AUTHENTICATIONS,
	shape.ServerAuthorizations:   busv1.Table_TABLE_SERVER_AUTHORIZATIONS,
	shape.RateLimits:             busv1.Table_TABLE_RATE_LIMITS,
	shape.EgressNetworks:         busv1.Table_TABLE_EGRESS_NETWORKS,
	shape.ReferenceGrants:        busv1.Table_TABLE_REFERENCE_GRANTS,
	shape.Service:                busv1.Table_TABLE_SERVICES,
	shape.HTTPRoutes:             busv1.Table_TABLE_ROUTES,
	shape.PolicyHTTPRoutes:       busv1.Table_TABLE_ROUTES,
	shape.GRPCRoutes:             busv1.Table_TABLE_ROUTES,
	shape.TLSRoutes:              busv1.Table_TABLE_ROUTES,
	shape.TCPRoutes:              busv1.Table_TABLE_ROUTES,
}

// Read makes the rows of an object in JSON. namespace is where it would be if it
// does not say. It returns ErrOther for kinds that no policy is made of;
// ServiceProfiles, which admission judges, have no rows. Other errors name the
// object, the field and what is wrong with it.
func Read(raw []byte, namespace string) (Object, error) {
	var head struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return Object{}, fmt.Errorf("reading the object: %w", err)
	}
	info, known, wrong := shape.Find(head.APIVersion, head.Kind)
	_, ours := tables[info.Kind]
	if !known || !ours && info.Kind != shape.ServiceProfiles {
		return Object{}, ErrOther
	}
	obj := shape.Decode(info.Kind, raw)
	if wrong != "" {
		obj = shape.Wrong(info.Kind, raw, "apiVersion", wrong)
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(namespace)
	}
	out := Object{Group: info.Group, Kind: info.Kind.Name(), Namespace: obj.GetNamespace(), Name: obj.GetName()}
	rows, _, problem := shape.Rows(info.Kind, obj, nil)
	if problem != nil {
		return out, problem
	}
	if !ours {
		return out, nil
	}
	for _, r := range rows {
		out.Rows = append(out.Rows, bus.Change{Table: r.Table, Key: r.Key, Value: bus.Encode(r.Message)})
	}
	return out, nil
}

// Gone makes the rows of an object that would be deleted. group "*" is the group
// of the only kind of that name, or, of HTTPRoutes, the Gateway API's.
func Gone(group, kind, namespace, name string) (Object, error) {
	i := slices.IndexFunc(shape.Kinds, func(k shape.KindInfo) bool {
		_, ours := tables[k.Kind]
		any := group == "*" && k.Kind != shape.PolicyHTTPRoutes
		return ours && k.Kind.Name() == kind && (k.Group == group || any)
	})
	if i < 0 {
		return Object{}, ErrOther
	}
	info := shape.Kinds[i]
	key := bus.Key(namespace, name)
	if tables[info.Kind] == busv1.Table_TABLE_ROUTES {
		key = bus.Key(info.Group, kind, namespace, name)
	}
	return Object{
		Group: info.Group, Kind: kind, Namespace: namespace, Name: name, Rows: []bus.Change{{Table: tables[info.Kind], Key: key}},
	}, nil
}

// Kinds lists the kinds that a policy is made of, by name.
func Kinds() []string {
	var out []string
	for k := range tables {
		out = append(out, k.Name())
	}
	slices.Sort(out)
	return slices.Compact(out)
}
