// Package derive decides which of another cluster's services are copied here,
// and as what. It is pure: the other cluster's rows come in, Kubernetes objects
// go out, the same for the same rows.
package derive

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// The labels and annotations of mirrored objects; all but managedBy are
// Linkerd's.
const (
	LabelExported      = "mirror.linkerd.io/exported"
	LabelMirrored      = "mirror.linkerd.io/mirrored-service"
	LabelCluster       = "mirror.linkerd.io/cluster-name"
	AnnotationRemote   = "mirror.linkerd.io/remote-svc-fq-name"
	AnnotationIdentity = "mirror.linkerd.io/remote-gateway-identity"
	// AnnotationInbound is Weft's own: the inbound port of the proxies of a slice
	// whose pods are reached without a gateway, so that a client in
	// transport-header mode connects to the proxy, as it does in its own cluster.
	AnnotationInbound = "mirror.weftmesh.io/remote-inbound-port"
	// LabelManagedBy marks what is ours: nothing without it is ever touched, so
	// a mirror of Linkerd's may run beside this one.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "weft-mirror"

	ownPrefix = "mirror.linkerd.io"
)

// Link is what is known of the other cluster beside its rows.
type Link struct {
	// Cluster names it; mirrors are called <service>-<cluster>. Empty means this
	// cluster itself, whose services have no copies but may be federated.
	Cluster string
	// Rules say which services are taken over.
	Rules Rules
	// Domain is its DNS domain, for the name a gateway is asked for.
	Domain string
	// TrustDomain is what its identities end in.
	TrustDomain string
	// Gateway is where its services are reached; with no addresses its pods are
	// reached directly.
	Gateway Gateway
}

// Gateway is a proxy that lets the other cluster's services be reached.
type Gateway struct {
	Addresses []netip.Addr
	Port      uint16
	Identity  string
	// Dead: it does not answer. Its addresses are kept, and are not ready.
	Dead bool
}

// Tables are the other cluster's rows that matter: its exported services and
// what stands behind them.
type Tables struct {
	Services []*busv1.Service
	// Endpoints by namespace/name of the service.
	Endpoints map[string][]*busv1.Endpoint
	// Workloads and Templates by their keys; one that is not known is absent.
	Workloads map[string]*busv1.Workload
	Templates map[string]*busv1.Template
}

// Mirror is one copied service.
type Mirror struct {
	Service *corev1.Service
	Slices  []*discoveryv1.EndpointSlice
}

// Key names the mirror.
func (m Mirror) Key() string { return m.Service.Namespace + "/" + m.Service.Name }

// Problem is a service that is exported and cannot be copied.
type Problem struct {
	Service string // namespace/name there
	Reason  string
}

// Mirrors gives every copy that should exist here, in the order of their keys.
func Mirrors(t Tables, link Link) ([]Mirror, []Problem) {
	var (
		out  []Mirror
		bad  []Problem
		seen = map[string]bool{}
	)
	for _, svc := range t.Services {
		discovered := link.Rules.discovered(svc)
		if !discovered && !link.Rules.Endpoints(svc) {
			continue
		}
		key := svc.GetNamespace() + "/" + svc.GetName()
		if reason := refuse(svc, svc.GetName()+"-"+link.Cluster); reason != "" {
			bad = append(bad, Problem{Service: key, Reason: reason})
			continue
		}
		m := Mirror{Service: service(svc, link)}
		if seen[m.Key()] {
			continue // rows have unique keys; a caller's mistake must not make two
		}
		seen[m.Key()] = true
		switch {
		case discovered:
			// Without slices of its own: whoever asks is answered from there.
			m.Service.Labels[labelRemoteCluster], m.Service.Labels[labelRemoteService] = link.Cluster, svc.GetName()
		case len(link.Gateway.Addresses) > 0:
			m.Slices = throughGateway(m.Service, t.Endpoints[key], link)
		default:
			m.Slices = direct(m.Service, t, t.Endpoints[key], link)
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Mirror) int { return strings.Compare(a.Key(), b.Key()) })
	slices.SortFunc(bad, func(a, b Problem) int { return strings.Compare(a.Service, b.Service) })
	return out, bad
}

// refuse is why a service cannot be copied under a name; empty means that it can.
func refuse(svc *busv1.Service, name string) string {
	if svc.GetExternalName() {
		return "it is of type ExternalName"
	}
	if len(svc.GetPorts()) == 0 {
		return "it has no ports"
	}
	// The other cluster is not trusted with more than its services: both names
	// become parts of paths here.
	if problems := validation.IsDNS1123Label(svc.GetNamespace()); len(problems) > 0 {
		return fmt.Sprintf("%.80q is not a namespace's name: %s", svc.GetNamespace(), problems[0])
	}
	if problems := validation.IsDNS1035Label(name); len(problems) > 0 {
		return fmt.Sprintf("%.80q would not be a service's name: %s", name, problems[0])
	}
	return ""
}

func service(svc *busv1.Service, link Link) *corev1.Service {
	out := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   svc.GetNamespace(),
			Name:        svc.GetName() + "-" + link.Cluster,
			Labels:      marks(link),
			Annotations: map[string]string{},
		},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: ports(svc)},
	}
	for key, value := range copied(svc.GetLabels(), link.Rules.ExcludedLabels) {
		if key != LabelManagedBy {
			out.Labels[key] = value
		}
	}
	maps.Copy(out.Annotations, copied(svc.GetAnnotations(), link.Rules.ExcludedAnnotations))
	out.Annotations[AnnotationRemote] = fullName(svc.GetNamespace(), svc.GetName(), link)
	return out
}

// marks are on every object of ours.
func marks(link Link) map[string]string {
	return map[string]string{
		LabelManagedBy: ManagedBy,
		LabelMirrored:  "true",
		LabelCluster:   link.Cluster,
	}
}

// fullName is what a service is called in the other cluster.
func fullName(namespace, name string, link Link) string {
	return name + "." + namespace + ".svc." + link.Domain
}

func protocol(p string) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return corev1.Protocol(p)
}

func target(p *busv1.ServicePort) intstr.IntOrString {
	text := p.GetTargetPort()
	if text == "" {
		return intstr.FromInt32(int32(p.GetPort()))
	}
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return intstr.FromInt32(int32(n))
	}
	return intstr.FromString(text)
}
