package external

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

const (
	// manager is who manages these slices: Linkerd's name.
	manager = "linkerd-external-workloads-controller"
	// full is how many endpoints a slice holds at most.
	full = 100
	// Kubernetes' own Services have slices of their own makers.
	systemNamespace = "kube-system"
)

// Manages tells whether a slice is one of those made here.
func Manages(es *discoveryv1.EndpointSlice) bool {
	return es.Labels[discoveryv1.LabelManagedBy] == manager
}

// Plan is what must be done for a Service's slices to be as they should.
type Plan struct {
	// Create have a generated name; Update carry the version they were made from.
	Create, Update []*discoveryv1.EndpointSlice
	// Delete are names.
	Delete []string
}

// Empty tells that nothing is to be done.
func (p Plan) Empty() bool { return len(p.Create)+len(p.Update)+len(p.Delete) == 0 }

// kind is what all endpoints of one slice have in common.
type kind struct {
	family discoveryv1.AddressType
	ports  string // as JSON
}

// Decide plans for a Service; nil when it is gone. workloads are those of its
// namespace, and have are the slices that were made for it. What targets a
// workload named in unknown stays as it is: it can't be read now.
func Decide(s *corev1.Service, workloads []*shape.ExternalWorkload, unknown map[string]bool, have []*discoveryv1.EndpointSlice) Plan {
	want := make(map[kind][]discoveryv1.Endpoint)
	ports := make(map[kind][]discoveryv1.EndpointPort)
	if s != nil && wanted(s) {
		selects := labels.SelectorFromValidatedSet(s.Spec.Selector)
		for _, w := range workloads {
			if w.DeletionTimestamp == nil && selects.Matches(labels.Set(w.Labels)) {
				add(want, ports, s, w)
			}
		}
	}
	var p Plan
	have = slices.SortedFunc(slices.Values(have), func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	of := make(map[kind][]*discoveryv1.EndpointSlice)
	for _, es := range have {
		k := kindOf(es)
		of[k] = append(of[k], es)
		if _, ok := want[k]; !ok {
			want[k] = nil
			ports[k] = es.Ports
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(want), func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.family, b.family), cmp.Compare(a.ports, b.ports))
	}) {
		p.fill(s, k, ports[k], want[k], unknown, of[k])
	}
	return p
}

func wanted(s *corev1.Service) bool { return s.Namespace != systemNamespace && shape.Derives(s) }

func kindOf(es *discoveryv1.EndpointSlice) kind { return kind{es.AddressType, portsKey(es.Ports)} }

func portsKey(ports []discoveryv1.EndpointPort) string {
	if len(ports) == 0 { // the API server makes no difference between none and an empty list
		return ""
	}
	raw, err := json.Marshal(ports)
	if err != nil {
		return ""
	}
	return string(raw)
}

// add puts a workload's addresses among what is wanted.
func add(want map[kind][]discoveryv1.Endpoint, ports map[kind][]discoveryv1.EndpointPort, s *corev1.Service, w *shape.ExternalWorkload) {
	own := portsOf(s, w)
	family := shape.Families(s)
	for _, ip := range w.Spec.WorkloadIPs {
		addr, err := netip.ParseAddr(ip.IP)
		if err != nil || addr.Zone() != "" || !family(addr) {
			continue
		}
		k := kind{discoveryv1.AddressTypeIPv4, portsKey(own)}
		if addr.Is6() {
			k.family = discoveryv1.AddressTypeIPv6
		}
		want[k] = append(want[k], endpoint(s, w, addr))
		ports[k] = own
	}
}

func endpoint(s *corev1.Service, w *shape.ExternalWorkload, addr netip.Addr) discoveryv1.Endpoint {
	ready, terminating := w.Ready(), false
	e := discoveryv1.Endpoint{
		Addresses:  []string{addr.String()},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready, Terminating: &terminating},
		TargetRef:  &corev1.ObjectReference{Kind: string(shape.ExternalWorkloads), Namespace: w.Namespace, Name: w.Name, UID: w.UID},
	}
	if zone := shape.Zone(w.Labels); zone != "" {
		e.Zone = &zone
	}
	// A name with dots would make the API server refuse the whole slice.
	if name := w.Name; headless(s) && len(validation.IsDNS1123Label(name)) == 0 {
		e.Hostname = &name
	}
	return e
}

func headless(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone }

// portsOf are the Service's ports that a workload declares, in a fixed order.
func portsOf(s *corev1.Service, w *shape.ExternalWorkload) []discoveryv1.EndpointPort {
	out := []discoveryv1.EndpointPort{}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		n, ok := w.Port(p)
		if !ok {
			continue
		}
		name, port, protocol := p.Name, int32(n), p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		out = append(out, discoveryv1.EndpointPort{Name: &name, Port: &port, Protocol: &protocol, AppProtocol: p.AppProtocol})
	}
	slices.SortFunc(out, func(a, b discoveryv1.EndpointPort) int {
		return cmp.Or(cmp.Compare(*a.Name, *b.Name), cmp.Compare(*a.Port, *b.Port), cmp.Compare(*a.Protocol, *b.Protocol))
	})
	return out
}

// fill distributes the endpoints of one kind: each stays in the slice where it is,
// new ones go where there is room.
func (p *Plan) fill(s *corev1.Service, k kind, ports []discoveryv1.EndpointPort, want []discoveryv1.Endpoint, unknown map[string]bool, have []*discoveryv1.EndpointSlice) {
	rest := make(map[string]discoveryv1.Endpoint, len(want))
	for _, e := range want {
		rest[id(&e)] = e
	}
	kept := make([][]discoveryv1.Endpoint, len(have))
	for i, es := range have {
		for j := range es.Endpoints {
			old := &es.Endpoints[j]
			if s != nil && old.TargetRef != nil && unknown[old.TargetRef.Name] {
				kept[i] = append(kept[i], *old)
				delete(rest, id(old))
			} else if now, ok := rest[id(old)]; ok && len(kept[i]) < full {
				kept[i] = append(kept[i], now)
				delete(rest, id(old))
			}
		}
	}
	fresh := slices.SortedFunc(maps.Values(rest), func(a, b discoveryv1.Endpoint) int { return cmp.Compare(id(&a), id(&b)) })
	for i, es := range have {
		if room := full - len(kept[i]); room > 0 && len(kept[i]) > 0 {
			n := min(room, len(fresh))
			kept[i], fresh = append(kept[i], fresh[:n]...), fresh[n:]
		} else if len(kept[i]) == 0 && len(fresh) > 0 { // rather than one slice less and one more
			n := min(full, len(fresh))
			kept[i], fresh = append(kept[i], fresh[:n]...), fresh[n:]
		}
		if len(kept[i]) == 0 {
			p.Delete = append(p.Delete, es.Name)
			continue
		}
		next := slice(s, k, ports, kept[i])
		next.Name, next.ResourceVersion = es.Name, es.ResourceVersion
		if !same(next, es) {
			p.Update = append(p.Update, next)
		}
	}
	for chunk := range slices.Chunk(fresh, full) {
		es := slice(s, k, ports, chunk)
		es.GenerateName = "linkerd-external-" + s.Name + "-"
		p.Create = append(p.Create, es)
	}
}

// id tells endpoints of one kind apart.
func id(e *discoveryv1.Endpoint) string {
	out := ""
	if e.TargetRef != nil {
		out = e.TargetRef.Name
	}
	for _, a := range e.Addresses {
		out += " " + a
	}
	return out
}

// slice makes one, but for its name.
func slice(s *corev1.Service, k kind, ports []discoveryv1.EndpointPort, endpoints []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	yes := true
	own := make(map[string]string, len(s.Labels)+3)
	maps.Copy(own, s.Labels)
	delete(own, corev1.IsHeadlessService)
	if headless(s) {
		own[corev1.IsHeadlessService] = ""
	}
	own[discoveryv1.LabelServiceName] = s.Name
	own[discoveryv1.LabelManagedBy] = manager
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace,
			Labels:    own,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: string(shape.Service), Name: s.Name, UID: s.UID, Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		AddressType: k.family,
		Endpoints:   endpoints,
		Ports:       ports,
	}
}

// same compares what is managed here; the order of endpoints means nothing.
func same(a, b *discoveryv1.EndpointSlice) bool {
	sorted := func(list []discoveryv1.Endpoint) []discoveryv1.Endpoint {
		return slices.SortedFunc(slices.Values(list), func(x, y discoveryv1.Endpoint) int { return cmp.Compare(id(&x), id(&y)) })
	}
	return maps.Equal(a.Labels, b.Labels) && len(b.OwnerReferences) == 1 && a.OwnerReferences[0].UID == b.OwnerReferences[0].UID &&
		equality.Semantic.DeepEqual(sorted(a.Endpoints), sorted(b.Endpoints))
}
