package shape

import (
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// serviceRows makes a Service's row.
func serviceRows(s *corev1.Service) ([]Row, *Problem) {
	row := &busv1.Service{
		Namespace:            s.Namespace,
		Name:                 s.Name,
		Uid:                  string(s.UID),
		ExternalName:         s.Spec.Type == corev1.ServiceTypeExternalName,
		InternalTrafficLocal: s.Spec.InternalTrafficPolicy != nil && *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		Annotations:          pick(s.Annotations, MeshAnnotation),
		Labels:               pick(s.Labels, serviceLabel),
		CreatedAt:            created(s),
	}
	var wrong *Problem
	if row.ClusterIps, wrong = clusterIPs(s); wrong != nil {
		return nil, wrong
	}
	for i, p := range s.Spec.Ports {
		at := "spec.ports[" + strconv.Itoa(i) + "]"
		if !validPort(int64(p.Port)) {
			return nil, problem(Service, s, at+".port", "%d is not between 1 and 65535", p.Port)
		}
		target, ok := targetPort(p.TargetPort)
		if !ok {
			return nil, problem(Service, s, at+".targetPort", "%d is not between 1 and 65535", p.TargetPort.IntVal)
		}
		out := &busv1.ServicePort{
			Name:       p.Name,
			Port:       uint32(p.Port),
			TargetPort: target,
			Protocol:   protocol(p.Protocol),
		}
		if p.AppProtocol != nil {
			out.AppProtocol = *p.AppProtocol
		}
		row.Ports = append(row.Ports, out)
	}
	return []Row{{busv1.Table_TABLE_SERVICES, bus.Key(s.Namespace, s.Name), row}}, nil
}

// targetPort is a number, a name, or "" when the Service names none.
func targetPort(p intstr.IntOrString) (text string, ok bool) {
	if p.Type == intstr.String {
		return p.StrVal, true
	}
	if p.IntVal == 0 {
		return "", true
	}
	return strconv.Itoa(int(p.IntVal)), validPort(int64(p.IntVal))
}

// clusterIPs are the Service's own addresses: none for a headless Service or
// an ExternalName.
func clusterIPs(s *corev1.Service) ([]string, *Problem) {
	list, field := s.Spec.ClusterIPs, "spec.clusterIPs"
	if len(list) == 0 {
		list, field = []string{s.Spec.ClusterIP}, "spec.clusterIP"
	}
	var out []string
	for _, ip := range list {
		if ip == "" || ip == corev1.ClusterIPNone {
			continue
		}
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			return nil, problem(Service, s, field, "%s is not an IP address", quote(ip))
		}
		out = append(out, addr.String())
	}
	return out, nil
}

// created is an object's creation in Unix seconds; 0 when the source does not
// say.
func created(obj metav1.Object) int64 {
	t := obj.GetCreationTimestamp()
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}
