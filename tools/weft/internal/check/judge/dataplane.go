package judge

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Meshed says whether a pod has the proxy, as a container or a native sidecar.
func Meshed(p *corev1.Pod) bool { return proxyOf(p) != nil }

func proxyOf(p *corev1.Pod) *corev1.Container {
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == Proxy {
				return &list[i]
			}
		}
	}
	return nil
}

// ProxiesReady judges whether each proxy is ready. Pods without one are no
// matter of this check; if no pod has one, that is wrong.
func ProxiesReady(pods []corev1.Pod, where string) error {
	var f faults
	proxies := 0
	for i := range pods {
		p := &pods[i]
		if over(p) || !Meshed(p) {
			continue
		}
		proxies++
		unready(&f, p, Proxy, "")
	}
	if proxies == 0 {
		return fault("pods in "+where, "", "none has a container "+Proxy,
			"annotate namespaces or pod templates with linkerd.io/inject: enabled and restart the pods, or pipe manifests through `weft inject`")
	}
	return f.err("kubectl -n NAMESPACE describe pod NAME; kubectl -n NAMESPACE logs NAME -c " + Proxy)
}

// proxyVersion is the version of a pod's proxy: what the injector wrote, or the image's tag.
func proxyVersion(p *corev1.Pod) string {
	if v := p.Annotations["linkerd.io/proxy-version"]; v != "" {
		return v
	}
	c := proxyOf(p)
	if c == nil {
		return ""
	}
	image, _, _ := strings.Cut(c.Image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[i+1:]
	}
	return ""
}

// ProxyVersions judges whether each proxy has the version of what: the CLI's, or the latest.
func ProxyVersions(pods []corev1.Pod, want, what string) error {
	var f faults
	for i := range pods {
		p := &pods[i]
		if over(p) || !Meshed(p) {
			continue
		}
		if have := proxyVersion(p); have != want {
			f.add(named("pod", p.Namespace, p.Name), "annotation linkerd.io/proxy-version", fmt.Sprintf("is %q, %s is %q", have, what, want))
		}
	}
	return f.err("restart the workloads (kubectl rollout restart) so that they get the proxy of the control plane; upgrade what is older")
}

// misplaced are keys that count only as annotations.
func misplaced(key string) bool {
	return key == "linkerd.io/inject" || strings.HasPrefix(key, "config.linkerd.io/") || strings.HasPrefix(key, "config.alpha.linkerd.io/") ||
		strings.HasPrefix(key, "config.beta.linkerd.io/")
}

// PodLabels judges labels that should be annotations.
func PodLabels(pods []corev1.Pod) error {
	var f faults
	for i := range pods {
		labels(&f, named("pod", pods[i].Namespace, pods[i].Name), pods[i].Labels)
	}
	return f.err("write them as annotations; as labels they have no effect")
}

// ServiceLabels judges labels that should be annotations.
func ServiceLabels(services []corev1.Service) error {
	var f faults
	for i := range services {
		labels(&f, named("Service", services[i].Namespace, services[i].Name), services[i].Labels)
	}
	return f.err("write them as annotations; as labels they have no effect")
}

func labels(f *faults, object string, all map[string]string) {
	for _, key := range sorted(all) {
		if misplaced(key) {
			f.add(object, "metadata.labels["+key+"]", "should be an annotation")
		}
	}
}

// onlyLabels are keys that count only as labels.
var onlyLabels = []string{"mirror.linkerd.io/exported"}

// ServiceAnnotations judges annotations that should be labels.
func ServiceAnnotations(services []corev1.Service) error {
	var f faults
	for i := range services {
		for _, key := range onlyLabels {
			if _, there := services[i].Annotations[key]; there {
				f.add(named("Service", services[i].Namespace, services[i].Name), "metadata.annotations["+key+"]", "should be a label")
			}
		}
	}
	return f.err("write them as labels; as annotations they have no effect")
}

// TrustRoots judges whether each proxy was given the anchors that hold now. The
// injector writes the sum of the bundle's text on the pod, and the bundle itself
// in the proxy's environment.
func TrustRoots(pods []corev1.Pod, bundle string, anchors Bundle) error {
	var f faults
	for i := range pods {
		p := &pods[i]
		if over(p) || !Meshed(p) {
			continue
		}
		pod := named("pod", p.Namespace, p.Name)
		if text, given := environment(proxyOf(p), "LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS"); given && text != "" {
			have, err := ReadBundle(pod, []byte(text))
			if err != nil || !SameAnchors(have, anchors) {
				f.add(pod, "env LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS of "+Proxy, "is not what "+anchors.From+" has")
			}
			continue
		}
		const key = "linkerd.io/trust-root-sha256"
		if sum := p.Annotations[key]; sum != "" && sum != Fingerprint(bundle) && sum != Fingerprint(strings.TrimSpace(bundle)) {
			f.add(pod, "annotation "+key, "is not the sum of "+anchors.From)
		}
	}
	return f.err("restart the workloads (kubectl rollout restart) so that their proxies get the new anchors, before an old one is dropped")
}

func environment(c *corev1.Container, name string) (string, bool) {
	for _, e := range c.Env {
		if e.Name == name && e.ValueFrom == nil {
			return e.Value, true
		}
	}
	return "", false
}

// Extensions judges whether each extension has one namespace.
func Extensions(namespaces []corev1.Namespace) error {
	const key = "linkerd.io/extension"
	owner := make(map[string]string)
	var f faults
	for i := range namespaces {
		n := &namespaces[i]
		extension := n.Labels[key]
		if extension == "" {
			continue
		}
		if first, taken := owner[extension]; taken {
			f.add(named("namespace", "", n.Name), "label "+key, fmt.Sprintf("is %s, as in namespace %s", extension, first))
			continue
		}
		owner[extension] = n.Name
	}
	return f.err("keep the label on one namespace of each extension")
}
