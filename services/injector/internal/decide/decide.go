// Package decide says whether a pod gets a proxy, and why not; and which ports
// of a pod or Service are opaque. It is pure.
package decide

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftmesh/weft/services/injector/internal/values"
)

// InjectAnnotation asks for a proxy, on a pod or on its namespace.
const InjectAnnotation = "linkerd.io/inject"

// Reasons why a pod gets no proxy; the words are Linkerd's, which knows all but
// WindowsPod.
const (
	HostNetwork        = "host_network_enabled"
	SidecarExists      = "sidecar_already_exists"
	WindowsPod         = "windows_pod"
	InvalidAtNamespace = "invalid_inject_annotation_at_ns"
	InvalidAtWorkload  = "invalid_inject_annotation_at_workload"
	DisabledAtWorkload = "injection_disable_annotation_present"
	NotEnabled         = "injection_enable_annotation_absent"
	NoAccountToken     = "disabled_automount_service_account_token_account"
)

// Where the annotation that decided was.
const (
	AtNamespace = "namespace"
	AtWorkload  = "workload"
)

// AccountMount is where Kubernetes mounts a service account's token.
const AccountMount = "/var/run/secrets/kubernetes.io/serviceaccount"

// Verdict on one pod.
type Verdict struct {
	// Reasons against a proxy, all of them, in a fixed order; none means inject.
	Reasons []string
	// At is where the annotation was that asked for the proxy.
	At string
}

// Exempt says whether an object belongs to the mesh itself. The webhook's
// selector keeps such objects away; a mesh must not hinder its own start even
// where the selector was lost.
func Exempt(labels map[string]string) bool {
	_, component := labels["linkerd.io/control-plane-component"]
	_, cni := labels["linkerd.io/cni-resource"]
	return component || cni
}

// Inject says whether the pod gets a proxy.
func (v Verdict) Inject() bool { return len(v.Reasons) == 0 }

// Pod decides on a pod by its namespace's annotations.
func Pod(pod *corev1.Pod, namespace map[string]string, v *values.Values) Verdict {
	var out Verdict
	if pod.Spec.HostNetwork {
		out.Reasons = append(out.Reasons, HostNetwork)
	}
	if hasSidecar(&pod.Spec, v) {
		out.Reasons = append(out.Reasons, SidecarExists)
	}
	if onWindows(&pod.Spec) {
		out.Reasons = append(out.Reasons, WindowsPod)
	}
	reason, at := wanted(namespace[InjectAnnotation], pod.Annotations[InjectAnnotation])
	out.At = at
	if reason != "" {
		out.Reasons = append(out.Reasons, reason)
	}
	if !v.Identity.ServiceAccountTokenProjection && !hasAccountToken(&pod.Spec) {
		out.Reasons = append(out.Reasons, NoAccountToken)
	}
	return out
}

// Never says whether a pod gets no proxy whatever its namespace says.
func Never(pod *corev1.Pod, v *values.Values) bool {
	return pod.Spec.HostNetwork || hasSidecar(&pod.Spec, v) || onWindows(&pod.Spec) || pod.Annotations[InjectAnnotation] == "disabled"
}

// wanted weighs the annotations of namespace and pod. It gives a reason
// against, or where the annotation for it is.
func wanted(namespace, pod string) (reason, at string) {
	switch {
	case !known(namespace):
		return InvalidAtNamespace, ""
	case !known(pod):
		return InvalidAtWorkload, ""
	case asks(namespace):
		if pod == "disabled" {
			return DisabledAtWorkload, AtWorkload
		}
		return "", AtNamespace
	case asks(pod):
		return "", AtWorkload
	}
	return NotEnabled, ""
}

func asks(s string) bool  { return s == "enabled" || s == "ingress" }
func known(s string) bool { return s == "" || s == "disabled" || asks(s) }

var (
	sidecarNames = []string{"linkerd-proxy", "istio-proxy"}
	initNames    = []string{"linkerd-init", "istio-init"}
	// A sidecar under another name is known by its image.
	sidecarImages = []string{"cr.l5d.io/linkerd/proxy:", "gcr.io/istio-release/proxyv2:"}
	initImages    = []string{"cr.l5d.io/linkerd/proxy-init:", "gcr.io/istio-release/proxy_init:"}
)

func hasSidecar(spec *corev1.PodSpec, v *values.Values) bool {
	is := func(c *corev1.Container, names, images []string) bool {
		return slices.Contains(names, c.Name) || slices.ContainsFunc(images, func(prefix string) bool {
			return strings.HasPrefix(c.Image, prefix)
		})
	}
	images := append(slices.Clone(sidecarImages), v.Proxy.Image.Name+":")
	for i := range spec.Containers {
		if is(&spec.Containers[i], sidecarNames, images) {
			return true
		}
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if is(c, sidecarNames, images) || is(c, initNames, initImages) {
			return true
		}
	}
	return false
}

func hasAccountToken(spec *corev1.PodSpec) bool {
	if auto := spec.AutomountServiceAccountToken; auto != nil && !*auto {
		return false
	}
	_, ok := FirstAccountMount(spec)
	return ok
}

// FirstAccountMount is the first container's mount of its account's token.
func FirstAccountMount(spec *corev1.PodSpec) (corev1.VolumeMount, bool) {
	if len(spec.Containers) == 0 {
		return corev1.VolumeMount{}, false
	}
	for _, m := range spec.Containers[0].VolumeMounts {
		if m.MountPath == AccountMount {
			return m, true
		}
	}
	return corev1.VolumeMount{}, false
}

// OpaqueAnnotation lists the ports whose protocol is not looked at.
const OpaqueAnnotation = "config.linkerd.io/opaque-ports"

// Opaque is the opaque-ports annotation that an object should get: the
// namespace's, else those of the defaults that it has. The namespace's may be
// empty: it says that no port is opaque, not even those of the defaults. false
// means none, also when the object has one already.
func Opaque(own, namespace map[string]string, defaults []string) (ports string, ok bool) {
	if _, has := own[OpaqueAnnotation]; has {
		return "", false
	}
	if ports, ok = namespace[OpaqueAnnotation]; ok {
		return ports, true
	}
	return strings.Join(defaults, ","), len(defaults) > 0
}

// PodDefaults are the pod's container ports that are in the default list.
// Ranges in the list never match: it is compared as text, as Linkerd does.
func PodDefaults(pod *corev1.Pod, list string) []string {
	var out []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, p := range c.Ports {
			out = addListed(out, p.ContainerPort, p.ContainerPort, list)
		}
	}
	return out
}

// ServiceDefaults are the Service's ports whose target is in the default list.
// A target that is a name is unknown here and never matches.
func ServiceDefaults(svc *corev1.Service, list string) []string {
	var out []string
	for _, p := range svc.Spec.Ports {
		switch target := p.TargetPort; {
		case target.Type == intstr.String && target.StrVal != "":
		case target.IntVal == 0:
			out = addListed(out, p.Port, p.Port, list)
		default:
			out = addListed(out, p.Port, target.IntVal, list)
		}
	}
	return out
}

// addListed adds port if wanted is in the list and port is new.
func addListed(ports []string, port, wanted int32, list string) []string {
	text := strconv.Itoa(int(port))
	if slices.Contains(ports, text) || !slices.Contains(strings.Split(list, ","), strconv.Itoa(int(wanted))) {
		return ports
	}
	return append(ports, text)
}
