package shape

import (
	"maps"
	"strings"
)

// Labels and annotations that have a meaning here (spec/destination-policy.md
// section 2).
const (
	labelControlPlane = "linkerd.io/control-plane-ns"
	labelZone         = "topology.kubernetes.io/zone"
	labelServiceName  = "kubernetes.io/service-name"

	annotationGatewayIdentity = "mirror.linkerd.io/remote-gateway-identity"
	annotationRemoteService   = "mirror.linkerd.io/remote-svc-fq-name"
	// LabelClusterName says on a slice which cluster it is a copy of.
	LabelClusterName = "mirror.linkerd.io/cluster-name"
	// Weft's own: the inbound port of the remote pods' proxies, written by mirror
	// where pods are reached without a gateway.
	annotationInboundPort = "mirror.weftmesh.io/remote-inbound-port"
)

// MeshAnnotation tells whether an annotation is the mesh's: its prefix is
// linkerd.io or a subdomain of it (config., balancer., retry., …), or Weft's own
// weftmesh.io. All others stay out of the rows, so that their changes are silent.
func MeshAnnotation(key string) bool {
	prefix, _, found := strings.Cut(key, "/")
	return found && (below(prefix, "linkerd.io") || below(prefix, "weftmesh.io"))
}

func below(name, domain string) bool {
	rest, ok := strings.CutSuffix(name, domain)
	return ok && (rest == "" || strings.HasSuffix(rest, "."))
}

// KindLabel tells whether a label of a custom kind's object is read: what
// selectors select by.
func KindLabel(kind Kind) func(string) bool {
	every := kind == Servers || kind == ExternalWorkloads
	return func(string) bool { return every }
}

// serviceLabel tells whether a Service's label is read: mirroring and
// multicluster say by label what a Service stands for.
func serviceLabel(key string) bool {
	return strings.HasPrefix(key, "mirror.linkerd.io/") || strings.HasPrefix(key, "multicluster.linkerd.io/")
}

// podLabel tells whether a label differs between the pods of one owner, and so
// must not be in their template.
func podLabel(key string) bool {
	switch key {
	case "statefulset.kubernetes.io/pod-name",
		"apps.kubernetes.io/pod-index",
		"batch.kubernetes.io/job-completion-index":
		return true
	}
	return false
}

// pick copies the entries whose key is wanted; nil when there are none.
func pick(m map[string]string, want func(string) bool) map[string]string {
	var out map[string]string
	for k, v := range m {
		if !want(k) {
			continue
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[k] = v
	}
	return out
}

func not(want func(string) bool) func(string) bool {
	return func(key string) bool { return !want(key) }
}

// Zone is the zone that a node's or workload's labels name.
func Zone(labels map[string]string) string { return labels[labelZone] }

func clone(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}
