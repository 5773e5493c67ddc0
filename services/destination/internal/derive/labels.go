package derive

import (
	"strconv"
	"strings"

	"github.com/weftmesh/weft/services/destination/internal/row"
)

// podLabels are the metric labels of a pod, as Linkerd names them.
func podLabels(labels map[string]string, p row.Peer) {
	if p.Template.OwnerKind != "" && p.Template.OwnerKind != "pod" {
		labels[ownerLabel(p.Template.OwnerKind)] = p.Template.OwnerName
	}
	labels["pod"] = p.Workload.Name
	labels["serviceaccount"] = serviceAccount(p)
	if p.Template.ControlPlane != "" {
		labels["control_plane_ns"] = p.Template.ControlPlane
	}
	if hash, ok := p.Label("pod-template-hash"); ok && hash != "" {
		labels["pod_template_hash"] = hash
	}
}

// ownerLabel keeps "job" free, which Prometheus sets on every series.
func ownerLabel(kind string) string {
	if kind == "job" {
		return "k8s_job"
	}
	return kind
}

func serviceAccount(p row.Peer) string {
	if p.Template.ServiceAccount == "" {
		return "default"
	}
	return p.Template.ServiceAccount
}

// setLabels are the metric labels that all endpoints of a Service share. A
// mirror's slices say which cluster they are of; the Service says so too when
// our own mirror made it.
func setLabels(s *row.Service, backends []row.Backend) map[string]string {
	labels := map[string]string{"service": s.Name, "namespace": s.Namespace}
	cluster, name := s.MirrorCluster, s.MirrorName
	for _, b := range backends {
		if g := b.Endpoint.Gateway; g != nil && g.Cluster != "" {
			cluster = g.Cluster
			if g.Authority != "" {
				name = g.Authority
			}
			break
		}
	}
	if cluster == "" {
		return labels
	}
	labels["target_cluster"] = cluster
	if parts := strings.Split(name, "."); len(parts) >= 2 {
		labels["target_service"], labels["target_service_namespace"] = parts[0], parts[1]
	}
	return labels
}

// locality compares zones for the label zone_locality.
func locality(client, endpoint string) string {
	switch {
	case client == "" || endpoint == "":
		return "unknown"
	case client == endpoint:
		return "local"
	default:
		return "remote"
	}
}

func hostPort(host string, port uint16) string {
	return host + ":" + strconv.Itoa(int(port))
}
