package derive

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Rules are what a Link of Linkerd's says of which services are taken over, and
// how. The zero value is what `linkerd multicluster link-gen` writes.
type Rules struct {
	// Exported selects services that get a copy with endpoints. A nil selector
	// means the usual one; labels.Nothing() selects none.
	Exported labels.Selector
	// RemoteDiscovery selects services whose copy has no endpoints: a client's
	// control plane looks them up in the other cluster. It goes before Exported.
	RemoteDiscovery labels.Selector
	// Federated selects the members of services that several clusters share.
	Federated labels.Selector
	// ExcludedAnnotations and ExcludedLabels are keys that are not copied; one
	// that ends in "/*" stands for all that begin with what is before it, the
	// slash not counted, as in Linkerd.
	ExcludedAnnotations, ExcludedLabels []string
}

// The selectors of the zero value.
var (
	usualExported  = labels.SelectorFromSet(labels.Set{LabelExported: "true"})
	usualDiscovery = labels.SelectorFromSet(labels.Set{LabelExported: "remote-discovery"})
	usualFederated = labels.SelectorFromSet(labels.Set{LabelFederated: "member"})
)

func matches(s, usual labels.Selector, svc *busv1.Service) bool {
	if s == nil {
		s = usual
	}
	return s.Matches(labels.Set(svc.GetLabels()))
}

// discovered says that a service is looked up in its own cluster.
func (r Rules) discovered(svc *busv1.Service) bool {
	return matches(r.RemoteDiscovery, usualDiscovery, svc)
}

// Endpoints says whether a service's endpoints are needed for its copy.
func (r Rules) Endpoints(svc *busv1.Service) bool {
	return matches(r.Exported, usualExported, svc) && !r.discovered(svc)
}

// member says that a service belongs to a federated one.
func (r Rules) member(svc *busv1.Service) bool { return matches(r.Federated, usualFederated, svc) }

// Wanted says whether anything is made of a service here.
func (r Rules) Wanted(svc *busv1.Service) bool {
	return r.Endpoints(svc) || r.discovered(svc) || r.member(svc)
}

// annotationOpaque is copied whatever is excluded: without it the ports of a
// copy would be taken for other than they are.
const annotationOpaque = "config.linkerd.io/opaque-ports"

// leading are the keys that tell a client's control plane where else to look.
// Names of clusters mean something else there than here, and what another
// cluster says must not lead to a third one's service, or to one of ours.
var leading = []string{AnnotationRemotes, AnnotationLocal, labelRemoteCluster, labelRemoteService}

// copied are the entries that a copy takes over.
func copied(from map[string]string, excluded []string) map[string]string {
	out := maps.Clone(from)
	maps.DeleteFunc(out, func(key, _ string) bool {
		if key == annotationOpaque {
			return false
		}
		return strings.HasPrefix(key, ownPrefix) || slices.Contains(leading, key) ||
			slices.ContainsFunc(excluded, func(e string) bool {
				prefix, all := strings.CutSuffix(e, "/*")
				return key == e || all && strings.HasPrefix(key, prefix)
			})
	})
	return out
}
