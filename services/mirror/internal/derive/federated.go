package derive

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// What makes a service federated, in Linkerd's words.
const (
	LabelFederated = "mirror.linkerd.io/federated"
	// AnnotationRemotes lists the members of other clusters: name@cluster,….
	AnnotationRemotes = "multicluster.linkerd.io/remote-discovery"
	// AnnotationLocal is the name of this cluster's member.
	AnnotationLocal = "multicluster.linkerd.io/local-discovery"

	labelRemoteCluster = "multicluster.linkerd.io/remote-discovery"
	labelRemoteService = "multicluster.linkerd.io/remote-service"
	federatedSuffix    = "-federated"
)

// Member is one cluster's part in a federated service.
type Member struct {
	// Service is the federated service as this member would have it.
	Service *corev1.Service
	// Name is the member's own.
	Name string
	// Cluster it is of; empty for this one.
	Cluster string
}

// Key names the federated service.
func (m Member) Key() string { return m.Service.Namespace + "/" + m.Service.Name }

// Members gives the cluster's part in every federated service, in the order of
// their keys.
func Members(t Tables, link Link) ([]Member, []Problem) {
	var (
		out  []Member
		bad  []Problem
		seen = map[string]bool{}
	)
	for _, svc := range t.Services {
		if !link.Rules.member(svc) {
			continue
		}
		name := svc.GetName() + federatedSuffix
		reason := refuse(svc, name)
		// A manifest that no API server has seen has neither addresses nor a uid.
		if reason == "" && len(svc.GetClusterIps()) == 0 && svc.GetUid() != "" {
			reason = "it is headless, and a federated service has one address"
		}
		if reason != "" {
			bad = append(bad, Problem{Service: svc.GetNamespace() + "/" + svc.GetName(), Reason: reason})
			continue
		}
		m := Member{Name: svc.GetName(), Cluster: link.Cluster, Service: &corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: svc.GetNamespace(), Name: name,
				Labels:      copied(svc.GetLabels(), link.Rules.ExcludedLabels),
				Annotations: copied(svc.GetAnnotations(), link.Rules.ExcludedAnnotations),
			},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: ports(svc)},
		}}
		if m.Service.Labels == nil {
			m.Service.Labels = map[string]string{}
		}
		// No cluster's name: the service is nobody's copy.
		m.Service.Labels[LabelManagedBy], m.Service.Labels[LabelMirrored] = ManagedBy, "true"
		if !seen[m.Key()] {
			seen[m.Key()] = true
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b Member) int { return strings.Compare(a.Key(), b.Key()) })
	slices.SortFunc(bad, func(a, b Problem) int { return strings.Compare(a.Service, b.Service) })
	return out, bad
}

func ports(svc *busv1.Service) (out []corev1.ServicePort) {
	for _, p := range svc.GetPorts() {
		out = append(out, corev1.ServicePort{
			Name: p.GetName(), Protocol: protocol(p.GetProtocol()), Port: int32(p.GetPort()), TargetPort: target(p),
		})
	}
	return out
}

// IsFederated says whether a service of ours is a federated one.
func IsFederated(svc *corev1.Service) bool {
	_, remote := svc.Annotations[AnnotationRemotes]
	_, local := svc.Annotations[AnnotationLocal]
	return (remote || local) && svc.Labels[LabelManagedBy] == ManagedBy && svc.Labels[LabelCluster] == ""
}

// Join is the federated service with this member in it; have is nil for the
// first. Ports, labels and annotations are the oldest member's: this cluster's,
// else the one that came first.
func Join(have *corev1.Service, m Member) *corev1.Service {
	var local string
	var remotes []string
	out := m.Service.DeepCopy()
	if have != nil {
		out = have.DeepCopy() // keeps the addresses that the API server gave
		local, remotes = parts(have)
	}
	entry := m.Name + "@" + m.Cluster
	if m.Cluster == "" {
		local = m.Name
	} else if !slices.Contains(remotes, entry) {
		remotes = append(without(remotes, m.Cluster), entry)
	}
	if m.Cluster == "" || local == "" && remotes[0] == entry {
		out.Labels, out.Annotations = maps.Clone(m.Service.Labels), maps.Clone(m.Service.Annotations)
		out.Spec.Ports, out.Spec.Selector = m.Service.Spec.Ports, nil
	}
	write(out, local, remotes)
	return out
}

// Leave is a federated service without a cluster's member; false when nobody is
// left in it.
func Leave(have *corev1.Service, cluster string) (*corev1.Service, bool) {
	local, remotes := parts(have)
	if cluster == "" {
		local = ""
	} else {
		remotes = without(remotes, cluster)
	}
	out := have.DeepCopy()
	write(out, local, remotes)
	return out, local != "" || len(remotes) > 0
}

func parts(svc *corev1.Service) (local string, remotes []string) {
	for item := range strings.SplitSeq(svc.Annotations[AnnotationRemotes], ",") {
		if item = strings.TrimSpace(item); item != "" && !slices.Contains(remotes, item) {
			remotes = append(remotes, item)
		}
	}
	return svc.Annotations[AnnotationLocal], remotes
}

func without(remotes []string, cluster string) []string {
	return slices.DeleteFunc(slices.Clone(remotes), func(entry string) bool { return strings.HasSuffix(entry, "@"+cluster) })
}

func write(svc *corev1.Service, local string, remotes []string) {
	if svc.Annotations == nil {
		svc.Annotations = map[string]string{}
	}
	for key, value := range map[string]string{AnnotationLocal: local, AnnotationRemotes: strings.Join(remotes, ",")} {
		if svc.Annotations[key] = value; value == "" {
			delete(svc.Annotations, key)
		}
	}
}
