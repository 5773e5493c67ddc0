package shape

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind is one kind of Kubernetes object that the watcher reads; where two groups
// have a kind of one name, its group follows after a dot.
type Kind string

// The kinds that are read. ReplicaSets and Jobs make no rows of their own; they
// say who owns a pod.
const (
	Namespace              Kind = "Namespace"
	Node                   Kind = "Node"
	ReplicaSet             Kind = "ReplicaSet"
	Job                    Kind = "Job"
	Pod                    Kind = "Pod"
	ExternalWorkloads      Kind = "ExternalWorkload"
	Service                Kind = "Service"
	EndpointSlice          Kind = "EndpointSlice"
	Servers                Kind = "Server"
	AuthorizationPolicies  Kind = "AuthorizationPolicy"
	MeshTLSAuthentications Kind = "MeshTLSAuthentication"
	NetworkAuthentications Kind = "NetworkAuthentication"
	ServerAuthorizations   Kind = "ServerAuthorization"
	RateLimits             Kind = "HTTPLocalRateLimitPolicy"
	EgressNetworks         Kind = "EgressNetwork"
	ServiceProfiles        Kind = "ServiceProfile"
	TrafficSplits          Kind = "TrafficSplit"
	ReferenceGrants        Kind = "ReferenceGrant"
	HTTPRoutes             Kind = "HTTPRoute"
	GRPCRoutes             Kind = "GRPCRoute"
	TLSRoutes              Kind = "TLSRoute"
	TCPRoutes              Kind = "TCPRoute"
	Links                  Kind = "Link"
	// PolicyHTTPRoutes are Linkerd's, of before the Gateway API's could be
	// attached to Services.
	PolicyHTTPRoutes Kind = "HTTPRoute.policy.linkerd.io"
)

// Name is the kind as objects write it: two groups have a kind named HTTPRoute.
func (k Kind) Name() string {
	name, _, _ := strings.Cut(string(k), ".")
	return name
}

// KindInfo says where a kind is found in the Kubernetes API.
type KindInfo struct {
	Kind Kind
	// Group is "" for the core group.
	Group string
	// Versions that are read, the preferred one first.
	Versions []string
	// Resource is the plural in URLs.
	Resource string
	// Namespaced is false for what belongs to the whole cluster.
	Namespaced bool
	// Custom kinds come with a CRD that may not be installed.
	Custom bool
}

// Kinds lists every kind that is read, in the order in which a first list is
// best worked through: what others join with comes first.
var Kinds = []KindInfo{
	{Namespace, "", []string{"v1"}, "namespaces", false, false},
	{Node, "", []string{"v1"}, "nodes", false, false},
	{ReplicaSet, "apps", []string{"v1"}, "replicasets", true, false},
	{Job, "batch", []string{"v1"}, "jobs", true, false},
	{MeshTLSAuthentications, "policy.linkerd.io", []string{"v1alpha1"}, "meshtlsauthentications", true, true},
	{NetworkAuthentications, "policy.linkerd.io", []string{"v1alpha1"}, "networkauthentications", true, true},
	{Servers, "policy.linkerd.io", []string{"v1beta3", "v1beta2", "v1beta1"}, "servers", true, true},
	{AuthorizationPolicies, "policy.linkerd.io", []string{"v1alpha1"}, "authorizationpolicies", true, true},
	{ServerAuthorizations, "policy.linkerd.io", []string{"v1beta1", "v1alpha1"}, "serverauthorizations", true, true},
	{RateLimits, "policy.linkerd.io", []string{"v1alpha1"}, "httplocalratelimitpolicies", true, true},
	{EgressNetworks, "policy.linkerd.io", []string{"v1alpha1"}, "egressnetworks", true, true},
	{ReferenceGrants, "gateway.networking.k8s.io", []string{"v1", "v1beta1"}, "referencegrants", true, true},
	{PolicyHTTPRoutes, "policy.linkerd.io", []string{"v1beta3", "v1beta2", "v1beta1", "v1alpha1"}, "httproutes", true, true},
	{HTTPRoutes, "gateway.networking.k8s.io", []string{"v1", "v1beta1"}, "httproutes", true, true},
	{GRPCRoutes, "gateway.networking.k8s.io", []string{"v1", "v1alpha2"}, "grpcroutes", true, true},
	{TLSRoutes, "gateway.networking.k8s.io", []string{"v1", "v1alpha3", "v1alpha2"}, "tlsroutes", true, true},
	{TCPRoutes, "gateway.networking.k8s.io", []string{"v1", "v1alpha2"}, "tcproutes", true, true},
	{ServiceProfiles, "linkerd.io", []string{"v1alpha2", "v1alpha1"}, "serviceprofiles", true, true},
	{TrafficSplits, "split.smi-spec.io", []string{"v1alpha4", "v1alpha3", "v1alpha2", "v1alpha1"}, "trafficsplits", true, true},
	{Links, "multicluster.linkerd.io", []string{"v1alpha3", "v1alpha2", "v1alpha1"}, "links", true, true},
	{Service, "", []string{"v1"}, "services", true, false},
	{Pod, "", []string{"v1"}, "pods", true, false},
	{ExternalWorkloads, "workload.linkerd.io", []string{"v1beta1"}, "externalworkloads", true, true},
	{EndpointSlice, "discovery.k8s.io", []string{"v1"}, "endpointslices", true, false},
}

// Find tells which kind an object's apiVersion and kind name. known is false
// for everything that the watcher has no use for. A kind of ours in a version
// that is not read is known, and wrong says so.
func Find(apiVersion, kind string) (info KindInfo, known bool, wrong string) {
	group, version := "", apiVersion
	if before, after, ok := strings.Cut(apiVersion, "/"); ok {
		group, version = before, after
	}
	for _, k := range Kinds {
		if k.Kind.Name() != kind || k.Group != group {
			continue
		}
		if !slices.Contains(k.Versions, version) {
			return k, true, "version " + quote(version) + " is not read; write " + k.Versions[0]
		}
		return k, true, ""
	}
	return KindInfo{}, false, ""
}

// KindOf finds a kind by its group and its name there.
func KindOf(group, name string) (kind Kind, known bool) {
	info, known, _ := Find(group+"/", name)
	return info.Kind, known
}

// ID names one object. A namespace is "" for cluster-wide kinds.
type ID struct {
	Kind            Kind
	Namespace, Name string
}

// String is how an object is named to people: Kind namespace/name.
// Names come from whoever writes files, and String goes to logs and presences.
func (id ID) String() string {
	if id.Namespace == "" {
		return string(id.Kind) + " " + clipped(id.Name)
	}
	return string(id.Kind) + " " + clipped(id.Namespace) + "/" + clipped(id.Name)
}

// clipped cuts what is longer than any name that Kubernetes takes.
func clipped(name string) string {
	const most = 253
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}

// IDOf names obj, which is of the given kind.
func IDOf(kind Kind, obj metav1.Object) ID {
	return ID{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}
