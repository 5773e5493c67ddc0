package shape

import (
	"strings"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Row is one row of the log, before it is encoded.
type Row struct {
	Table   busv1.Table
	Key     string
	Message proto.Message
}

// Rows makes the rows of one object of the given kind. look finds the
// ReplicaSet or Job above a pod. When wrong is set there are no rows and the
// object is to be skipped; partly names what was left out of rows that are
// otherwise good.
func Rows(kind Kind, obj metav1.Object, look Lookup) (rows []Row, partly, wrong *Problem) {
	if bad, ok := obj.(*Bad); ok {
		return nil, nil, bad.Problem()
	}
	if wrong := checkName(kind, obj); wrong != nil {
		return nil, nil, wrong
	}
	switch o := obj.(type) {
	case *corev1.Namespace:
		rows = namespaceRows(o)
	case *metav1.PartialObjectMetadata:
		if kind == Node {
			rows = nodeRows(o)
		}
	case *corev1.Pod:
		rows, wrong = podRows(o, look)
	case *ExternalWorkload:
		rows, wrong = externalRows(o)
	case *corev1.Service:
		rows, wrong = serviceRows(o)
	case *discoveryv1.EndpointSlice:
		rows, partly, wrong = sliceRows(o)
	case *Server:
		rows, partly, wrong = serverRows(o)
	case *AuthorizationPolicy:
		rows, wrong = authorizationRows(o)
	case *MeshTLSAuthentication:
		rows, wrong = meshTLSRows(o)
	case *NetworkAuthentication:
		rows, wrong = networkRows(o)
	case *ServerAuthorization:
		rows, wrong = serverAuthorizationRows(o)
	case *RateLimit:
		rows, wrong = rateLimitRows(o)
	case *EgressNetwork:
		rows = egressRows(o)
	case *ServiceProfile:
		rows, wrong = profileRows(o)
	case *TrafficSplit:
		rows, wrong = splitRows(o)
	case *ReferenceGrant:
		rows = grantRows(o)
	case *HTTPRoute:
		rows, wrong = routeRows(kind, o)
	case *GRPCRoute:
		rows, wrong = routeRows(kind, o)
	case *PlainRoute:
		rows, wrong = routeRows(kind, o)
	case *Link:
		rows = linkRows(o)
	default:
		wrong = problem(kind, obj, "", "an object of Go type %T makes no rows", obj)
	}
	return rows, partly, wrong
}

func namespaceRows(n *corev1.Namespace) []Row {
	return []Row{{busv1.Table_TABLE_NAMESPACES, bus.Key(n.Name), &busv1.Namespace{
		Name:        n.Name,
		Uid:         string(n.UID),
		Annotations: pick(n.Annotations, MeshAnnotation),
	}}}
}

func nodeRows(n *metav1.PartialObjectMetadata) []Row {
	return []Row{{busv1.Table_TABLE_NODES, bus.Key(n.Name), &busv1.Node{Name: n.Name, Zone: Zone(n.Labels)}}}
}

// ClusterRow is the row in which a log says whose it is.
func ClusterRow(c *busv1.Cluster) Row {
	return Row{busv1.Table_TABLE_CLUSTERS, bus.Key(c.GetName()), c}
}

// checkName keeps out names that the Kubernetes API would have refused: they
// become keys, log attributes and authorities.
func checkName(kind Kind, obj metav1.Object) *Problem {
	if errs := validation.IsDNS1123Subdomain(obj.GetName()); len(errs) > 0 {
		return problem(kind, obj, "metadata.name", "%s is not a name: %s", quote(obj.GetName()), rule(errs[0]))
	}
	if ns := obj.GetNamespace(); ns != "" {
		if errs := validation.IsDNS1123Label(ns); len(errs) > 0 {
			return problem(kind, obj, "metadata.namespace", "%s is not a namespace: %s", quote(ns), rule(errs[0]))
		}
	}
	return nil
}

// Maker tells which object a row of the log was made from. It is how the last
// good rows of an object that is bad now are found again after a restart. A
// template has no maker: it belongs to the workloads that name it.
func Maker(table busv1.Table, key string) (id ID, ok bool) {
	parts := bus.Parts(key)
	switch table {
	case busv1.Table_TABLE_NAMESPACES, busv1.Table_TABLE_NODES:
		if len(parts) != 1 {
			return ID{}, false
		}
		return ID{Kind: makers[table], Name: parts[0]}, true
	case busv1.Table_TABLE_WORKLOADS:
		if len(parts) != 3 {
			return ID{}, false
		}
		kind := Pod
		if parts[0] == "external" {
			kind = ExternalWorkloads
		}
		return ID{kind, parts[1], parts[2]}, true
	case busv1.Table_TABLE_ROUTES:
		if len(parts) != 4 {
			return ID{}, false
		}
		kind, known := KindOf(parts[0], parts[1])
		return ID{kind, parts[2], parts[3]}, known
	case busv1.Table_TABLE_ENDPOINTS:
		if len(parts) != 4 {
			return ID{}, false
		}
		if parts[2] == derivedSlice(false) || parts[2] == derivedSlice(true) {
			return DerivedID(parts[0], parts[1]), true
		}
		return ID{EndpointSlice, parts[0], parts[2]}, true
	}
	if kind, known := makers[table]; known && len(parts) == 2 {
		return ID{kind, parts[0], parts[1]}, true
	}
	return ID{}, false
}

// makers has the tables whose rows are named as their objects are.
var makers = map[busv1.Table]Kind{
	busv1.Table_TABLE_NAMESPACES:               Namespace,
	busv1.Table_TABLE_NODES:                    Node,
	busv1.Table_TABLE_SERVICES:                 Service,
	busv1.Table_TABLE_SERVERS:                  Servers,
	busv1.Table_TABLE_AUTHORIZATION_POLICIES:   AuthorizationPolicies,
	busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS: MeshTLSAuthentications,
	busv1.Table_TABLE_NETWORK_AUTHENTICATIONS:  NetworkAuthentications,
	busv1.Table_TABLE_SERVER_AUTHORIZATIONS:    ServerAuthorizations,
	busv1.Table_TABLE_RATE_LIMITS:              RateLimits,
	busv1.Table_TABLE_EGRESS_NETWORKS:          EgressNetworks,
	busv1.Table_TABLE_REFERENCE_GRANTS:         ReferenceGrants,
	busv1.Table_TABLE_SERVICE_PROFILES:         ServiceProfiles,
	busv1.Table_TABLE_TRAFFIC_SPLITS:           TrafficSplits,
	busv1.Table_TABLE_LINKS:                    Links,
}

// DerivedID names the set of endpoints derived for a Service, which no object
// stands for.
func DerivedID(namespace, service string) ID {
	return ID{"derived endpoints", namespace, service}
}

// rule is what a name must be, without the examples that the library adds.
func rule(s string) string {
	s, _, _ = strings.Cut(s, " (e.g.")
	return short(s)
}

// short bounds the words of a library's error, which may quote what a user
// wrote, and keeps them on one line.
func short(s string) string {
	const most = 200
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
