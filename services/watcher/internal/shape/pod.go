package shape

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// WorkloadKey is the key of a pod's or ExternalWorkload's row.
func WorkloadKey(kind busv1.Workload_Kind, namespace, name string) string {
	word := "pod"
	if kind == busv1.Workload_KIND_EXTERNAL {
		word = "external"
	}
	return bus.Key(word, namespace, name)
}

// podRows makes a pod's template and workload rows.
func podRows(pod *corev1.Pod, look Lookup) ([]Row, *Problem) {
	ports, wrong := portsOf(pod)
	if wrong != nil {
		return nil, wrong
	}
	ips, wrong := podIPs(pod)
	if wrong != nil {
		return nil, wrong
	}
	hostIPs, wrong := hostIPs(pod)
	if wrong != nil {
		return nil, wrong
	}
	account := pod.Spec.ServiceAccountName
	if account == "" {
		// What the API server would have filled in.
		account = "default"
	}
	template := &busv1.Template{
		Namespace:             pod.Namespace,
		Owner:                 ownerOf(pod, look),
		ServiceAccount:        account,
		Labels:                pick(pod.Labels, not(podLabel)),
		Annotations:           pick(pod.Annotations, MeshAnnotation),
		Ports:                 ports,
		Probes:                probesOf(pod),
		ControlPlaneNamespace: pod.Labels[labelControlPlane],
		Proxy:                 proxyOf(pod),
		HostNetwork:           pod.Spec.HostNetwork,
	}
	key := templateKey(template)
	workload := &busv1.Workload{
		Kind:        busv1.Workload_KIND_POD,
		Namespace:   pod.Namespace,
		Name:        pod.Name,
		Uid:         string(pod.UID),
		Template:    key,
		Ips:         ips,
		HostIps:     hostIPs,
		Node:        pod.Spec.NodeName,
		Phase:       phaseOf(pod),
		Ready:       podReady(pod),
		Terminating: pod.DeletionTimestamp != nil,
		Labels:      pick(pod.Labels, podLabel),
	}
	return workloadRows(template, key, workload), nil
}

func workloadRows(template *busv1.Template, key string, workload *busv1.Workload) []Row {
	return []Row{
		{busv1.Table_TABLE_TEMPLATES, key, template},
		{busv1.Table_TABLE_WORKLOADS, WorkloadKey(workload.Kind, workload.Namespace, workload.Name), workload},
	}
}

var hashText = base32.HexEncoding.WithPadding(base32.NoPadding)

// templateKey names a template by its content: equal templates are one row, and
// a template never changes. 120 bits, as 24 characters.
func templateKey(t *busv1.Template) string {
	sum := sha256.Sum256(bus.Encode(t))
	return bus.Key(t.Namespace, strings.ToLower(hashText.EncodeToString(sum[:15])))
}

// podIPs are the pod's addresses; the older single field counts when the list
// is empty.
func podIPs(pod *corev1.Pod) ([]string, *Problem) {
	var out []string
	for i, ip := range pod.Status.PodIPs {
		addr, err := netip.ParseAddr(ip.IP)
		if err != nil {
			return nil, problem(Pod, pod, "status.podIPs["+strconv.Itoa(i)+"].ip", "%s is not an IP address", quote(ip.IP))
		}
		out = append(out, addr.String())
	}
	if len(out) == 0 && pod.Status.PodIP != "" {
		addr, err := netip.ParseAddr(pod.Status.PodIP)
		if err != nil {
			return nil, problem(Pod, pod, "status.podIP", "%s is not an IP address", quote(pod.Status.PodIP))
		}
		out = append(out, addr.String())
	}
	return out, nil
}

func hostIPs(pod *corev1.Pod) ([]string, *Problem) {
	var out []string
	for i, ip := range pod.Status.HostIPs {
		addr, err := netip.ParseAddr(ip.IP)
		if err != nil {
			return nil, problem(Pod, pod, "status.hostIPs["+strconv.Itoa(i)+"].ip", "%s is not an IP address", quote(ip.IP))
		}
		out = append(out, addr.String())
	}
	if len(out) == 0 && pod.Status.HostIP != "" {
		addr, err := netip.ParseAddr(pod.Status.HostIP)
		if err != nil {
			return nil, problem(Pod, pod, "status.hostIP", "%s is not an IP address", quote(pod.Status.HostIP))
		}
		out = append(out, addr.String())
	}
	return out, nil
}

func phaseOf(pod *corev1.Pod) busv1.Workload_Phase {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed:
		return busv1.Workload_PHASE_ENDED
	case corev1.PodRunning, corev1.PodUnknown:
		return busv1.Workload_PHASE_RUNNING
	}
	return busv1.Workload_PHASE_PENDING
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
