package shape

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Derives tells whether a Service's endpoints follow from its selector, as the
// EndpointSlice controller has it.
func Derives(s *corev1.Service) bool {
	return len(s.Spec.Selector) > 0 && s.Spec.Type != corev1.ServiceTypeExternalName
}

// Derive makes the endpoint rows that the EndpointSlice controller would have
// made for a Service, for a source that has no such controller. pods and
// externals are those of the Service's namespace. zone gives a node's zone.
func Derive(s *corev1.Service, pods []*corev1.Pod, externals []*ExternalWorkload, zone func(node string) string) []Row {
	if !Derives(s) {
		return nil
	}
	var rows []Row
	at := make(map[string]int) // address -> place in rows
	add := func(addr netip.Addr, e *busv1.Endpoint) {
		e.Namespace, e.Service = s.Namespace, s.Name
		e.Address, e.Ipv6 = addr.String(), addr.Is6()
		e.Slice = derivedSlice(e.Ipv6)
		row := Row{busv1.Table_TABLE_ENDPOINTS, bus.Key(s.Namespace, s.Name, e.Slice, e.Address), e}
		if i, twice := at[e.Address]; twice {
			if old := rows[i].Message.(*busv1.Endpoint); e.Ready && !old.Ready {
				rows[i] = row
			}
			return
		}
		at[e.Address] = len(rows)
		rows = append(rows, row)
	}
	selects := labels.SelectorFromValidatedSet(s.Spec.Selector)
	wanted := Families(s)
	for _, pod := range pods {
		if pod.Namespace != s.Namespace || !selects.Matches(labels.Set(pod.Labels)) || phaseOf(pod) == busv1.Workload_PHASE_ENDED {
			continue
		}
		ips, wrong := podIPs(pod)
		if wrong != nil {
			continue // the pod's own problem, and named there
		}
		for _, ip := range ips {
			if addr := netip.MustParseAddr(ip); wanted(addr) {
				add(addr, podEndpoint(s, pod, zone(pod.Spec.NodeName)))
			}
		}
	}
	for _, e := range externals {
		if e.Namespace != s.Namespace || !selects.Matches(labels.Set(e.Labels)) {
			continue
		}
		for _, ip := range e.Spec.WorkloadIPs {
			if addr, err := netip.ParseAddr(ip.IP); err == nil && wanted(addr) {
				add(addr, externalEndpoint(s, e))
			}
		}
	}
	return rows
}

// derivedSlice stands for the slice's name in the key of a derived endpoint.
// The comma keeps it apart from every name that a real slice may have.
func derivedSlice(ipv6 bool) string {
	if ipv6 {
		return "derived,ipv6"
	}
	return "derived,ipv4"
}

// podEndpoint has the conditions as the EndpointSlice controller sets them.
func podEndpoint(s *corev1.Service, pod *corev1.Pod, zone string) *busv1.Endpoint {
	terminating := pod.DeletionTimestamp != nil
	e := &busv1.Endpoint{
		Workload:    WorkloadKey(busv1.Workload_KIND_POD, pod.Namespace, pod.Name),
		Ready:       s.Spec.PublishNotReadyAddresses || (podReady(pod) && !terminating),
		Serving:     podReady(pod),
		Terminating: terminating,
		Node:        pod.Spec.NodeName,
		Zone:        zone,
	}
	// A pod's own name in DNS needs both fields (spec of Pod.hostname).
	if pod.Spec.Hostname != "" && pod.Spec.Subdomain == s.Name {
		e.Hostname = pod.Spec.Hostname
	}
	for _, p := range s.Spec.Ports {
		if n, ok := podPort(pod, p); ok {
			e.Ports = append(e.Ports, &busv1.EndpointPort{Name: p.Name, Port: n})
		}
	}
	sortPorts(e.Ports)
	return e
}

// podPort resolves a Service port on one pod. A name may stand for a different
// number in each pod; a pod without it offers the other ports only.
func podPort(pod *corev1.Pod, p corev1.ServicePort) (uint32, bool) {
	if p.TargetPort.Type == intstr.String && p.TargetPort.StrVal != "" {
		for c := range LongRunning(pod) {
			for _, cp := range c.Ports {
				if cp.Name == p.TargetPort.StrVal && protocol(cp.Protocol) == protocol(p.Protocol) && validPort(int64(cp.ContainerPort)) {
					return uint32(cp.ContainerPort), true
				}
			}
		}
		return 0, false
	}
	return numericTarget(p)
}

func numericTarget(p corev1.ServicePort) (uint32, bool) {
	n := p.TargetPort.IntVal
	if n == 0 {
		n = p.Port
	}
	return uint32(n), validPort(int64(n))
}

// externalEndpoint follows Linkerd's external-workload endpoints controller
// (spec section 6): a Service port counts only if the workload declares it with
// the same protocol.
func externalEndpoint(s *corev1.Service, e *ExternalWorkload) *busv1.Endpoint {
	ready := e.Ready()
	row := &busv1.Endpoint{
		Workload: WorkloadKey(busv1.Workload_KIND_EXTERNAL, e.Namespace, e.Name),
		Ready:    ready,
		Serving:  ready,
		Zone:     Zone(e.Labels),
	}
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		row.Hostname = e.Name
	}
	for i := range s.Spec.Ports {
		if n, ok := e.Port(&s.Spec.Ports[i]); ok {
			row.Ports = append(row.Ports, &busv1.EndpointPort{Name: s.Spec.Ports[i].Name, Port: n})
		}
	}
	sortPorts(row.Ports)
	return row
}

// Port resolves a Service's port on a workload, which must declare it with the
// same protocol. A name is that of one of the workload's ports.
func (e *ExternalWorkload) Port(p *corev1.ServicePort) (n uint32, ok bool) {
	for _, own := range e.Spec.Ports {
		same := own.Name == p.TargetPort.StrVal
		if p.TargetPort.Type == intstr.Int || p.TargetPort.StrVal == "" {
			n, ok := numericTarget(*p)
			same = ok && own.Port == int64(n)
		}
		if same && validPort(own.Port) && protocol(corev1.Protocol(own.Protocol)) == protocol(p.Protocol) {
			return uint32(own.Port), true
		}
	}
	return 0, false
}

// Families tells which address families a Service has: those it asks for, else
// those of its own addresses, else both.
func Families(s *corev1.Service) func(netip.Addr) bool {
	var v4, v6 bool
	for _, f := range s.Spec.IPFamilies {
		v4, v6 = v4 || f == corev1.IPv4Protocol, v6 || f == corev1.IPv6Protocol
	}
	if !v4 && !v6 {
		ips, _ := clusterIPs(s)
		for _, ip := range ips {
			is6 := netip.MustParseAddr(ip).Is6()
			v4, v6 = v4 || !is6, v6 || is6
		}
	}
	if !v4 && !v6 {
		v4, v6 = true, true
	}
	return func(a netip.Addr) bool { return a.Is4() && v4 || a.Is6() && v6 }
}
