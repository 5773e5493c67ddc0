package rotate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/tools/weft/internal/pki"
)

const (
	proxyName      = "linkerd-proxy"
	adminPortName  = "linkerd-admin"
	adminPort      = 4191
	envAnchors     = "LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS"
	envNamespace   = "_l5d_ns"
	envTrustDomain = "_l5d_trustdomain"
)

// proxyOf reads a live proxy from a pod; a native sidecar is among the init
// containers. It is not ok for a pod without one, or one that has ended.
func proxyOf(pod *corev1.Pod) (Proxy, bool) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return Proxy{}, false
	}
	all := append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...)
	i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == proxyName })
	if i < 0 {
		return Proxy{}, false
	}
	container := all[i]
	p := Proxy{Namespace: pod.Namespace, Pod: pod.Name, AdminPort: adminPort}
	for _, port := range container.Ports {
		if port.Name == adminPortName && port.ContainerPort > 0 {
			p.AdminPort = int(port.ContainerPort)
		}
	}
	mesh, domain := "linkerd", "cluster.local"
	for _, env := range container.Env {
		switch env.Name {
		case envNamespace:
			mesh = env.Value
		case envTrustDomain:
			domain = env.Value
		case envAnchors:
			if env.ValueFrom != nil && env.ValueFrom.ConfigMapKeyRef != nil {
				p.FromMap = true
			} else {
				p.Trusts, _ = pki.Bundle(env.Value)
			}
		}
	}
	account := pod.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	p.Identity = strings.Join([]string{account, pod.Namespace, "serviceaccount.identity", mesh, domain}, ".")
	for _, status := range append(slices.Clone(pod.Status.InitContainerStatuses), pod.Status.ContainerStatuses...) {
		if status.Name == proxyName && status.State.Running != nil {
			p.Running, p.Started = true, status.State.Running.StartedAt.Time
		}
	}
	return p, true
}
