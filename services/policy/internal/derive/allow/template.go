package allow

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// The annotations of a pod that are read here.
const (
	annotationDefault  = "config.linkerd.io/default-inbound-policy"
	annotationIdentity = "config.linkerd.io/proxy-require-identity-inbound-ports"
	annotationOpaque   = "config.linkerd.io/opaque-ports"
)

// Template is what the workloads of one owner share, as the answers need it.
type Template struct {
	// Meshed pods carry the label linkerd.io/control-plane-ns.
	Meshed bool
	Labels map[string]string
	// Default is empty unless the workload sets its own default policy.
	Default derive.DefaultPolicy
	// Identity are the ports whose default policy must require an identity.
	Identity derive.Ports
	// Opaque are the ports to treat as opaque when no Server selects them.
	Opaque derive.Ports
	// Problems are annotations that could not be read, in words.
	Problems []string

	names  map[string][]uint16 // TCP ports by container port name
	probes map[uint16][]probe  // by port, sorted
}

// probe is a request of the kubelet.
type probe struct {
	path string
	grpc bool
}

// healthCheck is what the kubelet calls in a gRPC probe.
const healthCheck = "/grpc.health.v1.Health/Check"

// NewTemplate digests a row. Unreadable annotations are left out and named in
// Problems; they never refuse the row.
func NewTemplate(row *busv1.Template) *Template {
	t := &Template{
		Meshed: row.GetControlPlaneNamespace() != "",
		Labels: row.GetLabels(),
		names:  map[string][]uint16{},
		probes: map[uint16][]probe{},
	}
	annotations := row.GetAnnotations()
	if v, ok := annotations[annotationDefault]; ok {
		p, err := derive.ParseDefaultPolicy(v)
		if err != nil {
			t.problem(annotationDefault, err)
		}
		t.Default = p
	}
	t.Identity = t.ports(annotations, annotationIdentity)
	t.Opaque = t.ports(annotations, annotationOpaque)
	for _, p := range row.GetPorts() {
		port := uint16(p.GetPort())
		if uint32(port) != p.GetPort() || port == 0 || p.GetName() == "" || !isTCP(p.GetProtocol()) {
			continue
		}
		if !slices.Contains(t.names[p.GetName()], port) {
			t.names[p.GetName()] = append(t.names[p.GetName()], port)
		}
	}
	for _, p := range row.GetProbes() {
		port := uint16(p.GetPort())
		if uint32(port) != p.GetPort() || port == 0 {
			continue
		}
		// As the kubelet does it: a path always begins with a slash.
		one := probe{path: "/" + strings.TrimPrefix(p.GetPath(), "/")}
		if p.GetGrpc() {
			one = probe{path: healthCheck, grpc: true}
		}
		t.probes[port] = append(t.probes[port], one)
	}
	for port, probes := range t.probes {
		slices.SortFunc(probes, func(a, b probe) int { return strings.Compare(a.path, b.path) })
		t.probes[port] = slices.Compact(probes)
	}
	return t
}

func (t *Template) ports(annotations map[string]string, key string) derive.Ports {
	// Absent and empty both mean no port: the injector writes the cluster's
	// default list into the annotation of each pod.
	ports, err := derive.ParsePorts(annotations[key])
	if err != nil {
		t.problem(key, err)
	}
	return ports
}

func (t *Template) problem(key string, err error) {
	t.Problems = append(t.Problems, fmt.Sprintf("annotation %s: %v", key, err))
}

func isTCP(protocol string) bool { return protocol == "" || strings.EqualFold(protocol, "TCP") }

// Workload is one pod or ExternalWorkload, as the answers need it.
type Workload struct {
	Kind      busv1.Workload_Kind
	Namespace string
	UID       string
	// TemplateKey is the key of the template row, which may arrive later.
	TemplateKey string
	// Labels are the workload's own; they win over the template's.
	Labels map[string]string
}

// OwnLabels writes the workload's own labels as one string, equal exactly if
// the labels are.
func (w *Workload) OwnLabels() string {
	if len(w.Labels) == 0 {
		return ""
	}
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(w.Labels)) {
		fmt.Fprintf(&b, "%q=%q,", k, w.Labels[k])
	}
	return b.String()
}

// NewWorkload keeps of a row what the answers read.
func NewWorkload(row *busv1.Workload) *Workload {
	w := &Workload{
		Kind:        row.GetKind(),
		Namespace:   row.GetNamespace(),
		UID:         row.GetUid(),
		TemplateKey: row.GetTemplate(),
	}
	if len(row.GetLabels()) > 0 {
		w.Labels = row.GetLabels()
	}
	return w
}

// Equal says whether no answer could differ between the two.
func (w *Workload) Equal(o *Workload) bool {
	return w.Kind == o.Kind && w.Namespace == o.Namespace && w.UID == o.UID &&
		w.TemplateKey == o.TemplateKey && maps.Equal(w.Labels, o.Labels)
}
