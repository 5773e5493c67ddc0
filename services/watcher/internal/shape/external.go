package shape

import (
	"net/netip"
	"strconv"
	"strings"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// externalRows makes an ExternalWorkload's rows. It is always running; whether
// it is ready is for its own health check to say, in a condition.
func externalRows(e *ExternalWorkload) ([]Row, *Problem) {
	if e.Spec.MeshTLS.Identity == "" {
		return nil, problem(ExternalWorkloads, e, "spec.meshTLS.identity", "is missing")
	}
	if e.Spec.MeshTLS.ServerName == "" {
		return nil, problem(ExternalWorkloads, e, "spec.meshTLS.serverName", "is missing")
	}
	template := &busv1.Template{
		Namespace:             e.Namespace,
		Labels:                clone(e.Labels),
		Annotations:           pick(e.Annotations, MeshAnnotation),
		ControlPlaneNamespace: e.Labels[labelControlPlane],
	}
	if owner, ok := onlyOwner(e); ok {
		template.Owner = &busv1.Owner{Kind: strings.ToLower(owner.Kind), Name: owner.Name}
	}
	for i, p := range e.Spec.Ports {
		if !validPort(p.Port) {
			return nil, problem(ExternalWorkloads, e, "spec.ports["+strconv.Itoa(i)+"].port", "%d is not between 1 and 65535", p.Port)
		}
		proto := p.Protocol
		if proto == "" {
			proto = "TCP"
		}
		template.Ports = append(template.Ports, &busv1.Port{Name: p.Name, Port: uint32(p.Port), Protocol: proto})
	}
	var ips []string
	for i, ip := range e.Spec.WorkloadIPs {
		addr, err := netip.ParseAddr(ip.IP)
		if err != nil {
			return nil, problem(ExternalWorkloads, e, "spec.workloadIPs["+strconv.Itoa(i)+"].ip", "%s is not an IP address", quote(ip.IP))
		}
		ips = append(ips, addr.String())
	}
	key := templateKey(template)
	return workloadRows(template, key, &busv1.Workload{
		Kind:        busv1.Workload_KIND_EXTERNAL,
		Namespace:   e.Namespace,
		Name:        e.Name,
		Uid:         string(e.UID),
		Template:    key,
		Ips:         ips,
		Phase:       busv1.Workload_PHASE_RUNNING,
		Ready:       e.Ready(),
		Terminating: e.DeletionTimestamp != nil,
		External: &busv1.External{
			Identity:   e.Spec.MeshTLS.Identity,
			ServerName: e.Spec.MeshTLS.ServerName,
			Zone:       Zone(e.Labels),
		},
	}), nil
}

// Ready tells whether a workload's own health check calls it ready.
func (e *ExternalWorkload) Ready() bool {
	for _, c := range e.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}
