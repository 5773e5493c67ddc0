// Package census tells which pods should have a proxy and have none, and why,
// and what their owners are to be told about it. It is pure: pods in, verdicts
// out. The rules are those of the injector (spec/identity-injector-mirror.md
// section 3.2), applied to what became of the pod.
package census

import (
	"bytes"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// Reason is why a pod has no proxy. It is a metric's label, so there are few.
type Reason string

// The reasons. The first five are the injector's own words for its refusals; the
// others are for pods that it was not asked about.
const (
	HostNetwork      Reason = "host_network_enabled"
	SidecarExists    Reason = "sidecar_already_exists"
	WindowsPod       Reason = "windows_pod"
	InvalidNamespace Reason = "invalid_inject_annotation_at_ns"
	InvalidPod       Reason = "invalid_inject_annotation_at_workload"
	WebhooksDisabled Reason = "admission_webhooks_disabled"
	NamespaceExempt  Reason = "namespace_exempt"
	// NotAnswered: the pod itself asks for a proxy, and nothing forbids it.
	NotAnswered Reason = "webhook_not_answered"
	// Older: its namespace asks, and was changed so after the pod was created.
	Older Reason = "created_before_annotation"
	// NotInjected: its namespace asks, and nothing forbids it.
	NotInjected Reason = "not_injected"
)

// Reasons lists every reason.
var Reasons = []Reason{
	HostNetwork, SidecarExists, WindowsPod, InvalidNamespace, InvalidPod,
	WebhooksDisabled, NamespaceExempt, NotAnswered, Older, NotInjected,
}

// text is for people; where Linkerd's injector has words for it, it is theirs.
var text = map[Reason]string{
	HostNetwork:      "hostNetwork is enabled",
	SidecarExists:    "pod has a sidecar injected already",
	WindowsPod:       "the pod runs on Windows, and the proxy is Linux's",
	InvalidNamespace: `invalid value for annotation "linkerd.io/inject" at namespace`,
	InvalidPod:       `invalid value for annotation "linkerd.io/inject" at workload`,
	WebhooksDisabled: `the namespace has the label "config.linkerd.io/admission-webhooks: disabled"`,
	NamespaceExempt:  "the injector is not asked about pods of this namespace",
	NotAnswered:      "the injector was not asked or did not answer when the pod was created; see that it runs, then restart the workload",
	Older:            "the pod is older than the namespace's annotation; restart the workload",
	NotInjected:      "the injector was not asked or did not answer when the pod was created; see that it runs, then restart the workload",
}

// Labels and annotations that the injector's webhook goes by.
const (
	inject           = "linkerd.io/inject"
	labelWebhooks    = "config.linkerd.io/admission-webhooks"
	labelComponent   = "linkerd.io/control-plane-component"
	labelCNIResource = "linkerd.io/cni-resource"
)

// NamespaceLabel tells whether a namespace's label is read here.
func NamespaceLabel(key string) bool { return key == labelWebhooks }

// Annotated says when a namespace's annotation was written, as far as the API
// server knows: when whoever owns it last wrote any of what he owns. Nil where
// nobody says; times are optional.
func Annotated(namespace *corev1.Namespace) *metav1.Time {
	var at *metav1.Time
	for i := range namespace.ManagedFields {
		f := &namespace.ManagedFields[i]
		if f.Time == nil || f.FieldsV1 == nil || !bytes.Contains(f.FieldsV1.GetRawBytes(), []byte(`"f:`+inject+`"`)) {
			continue
		}
		if at == nil || at.Before(f.Time) {
			at = f.Time
		}
	}
	return at
}

// annotatedAt reads what trimming keeps of Annotated.
func annotatedAt(namespace metav1.Object) time.Time {
	if namespace == nil {
		return time.Time{}
	}
	for _, f := range namespace.GetManagedFields() {
		if f.Time != nil {
			return f.Time.Time
		}
	}
	return time.Time{}
}

// SidecarImage tells whether an image is a mesh's proxy or its init program.
func SidecarImage(image string) bool {
	for _, prefix := range []string{
		"cr.l5d.io/linkerd/proxy:", "cr.l5d.io/linkerd/proxy-init:",
		"gcr.io/istio-release/proxyv2:", "gcr.io/istio-release/proxy_init:",
	} {
		if strings.HasPrefix(image, prefix) {
			return true
		}
	}
	return false
}

// Judge gives the reasons for which a pod that should have a proxy has none, the
// weightiest first; none when it has one or nobody asked for one. namespace may
// be nil: then only the pod's own annotation counts.
func Judge(namespace metav1.Object, pod *corev1.Pod) []Reason {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil ||
		ours(pod) || shape.Meshed(pod) {
		return nil
	}
	var outer map[string]string
	var labels map[string]string
	if namespace != nil {
		outer, labels = namespace.GetAnnotations(), namespace.GetLabels()
	}
	at, annotation := asked(outer[inject], pod.Annotations[inject])
	if at == nobody {
		return nil
	}
	var why []Reason
	if pod.Spec.HostNetwork {
		why = append(why, HostNetwork)
	}
	if hasSidecar(pod) {
		why = append(why, SidecarExists)
	}
	if OnWindows(&pod.Spec) {
		why = append(why, WindowsPod)
	}
	if annotation != "" {
		why = append(why, annotation)
	}
	if labels[labelWebhooks] == "disabled" {
		why = append(why, WebhooksDisabled)
	}
	switch {
	case pod.Namespace == metav1.NamespaceSystem || pod.Namespace == "cert-manager":
		why = append(why, NamespaceExempt)
	case len(why) > 0:
	case at == byPod:
		why = append(why, NotAnswered)
	case pod.CreationTimestamp.Time.Before(annotatedAt(namespace)):
		why = append(why, Older)
	default:
		why = append(why, NotInjected)
	}
	return why
}

// ours: the control plane's pods and the CNI plugin's have their proxies, or
// none, from their charts.
func ours(pod *corev1.Pod) bool {
	_, component := pod.Labels[labelComponent]
	_, cni := pod.Labels[labelCNIResource]
	return component || cni
}

type where int

const (
	nobody where = iota
	byNamespace
	byPod
)

// asked tells who asked for a proxy. An annotation with a value that means
// nothing was written by somebody who wanted something: it counts as asking, and
// as the reason for not getting it.
func asked(namespace, pod string) (where, Reason) {
	switch {
	case !valid(namespace):
		if pod == "disabled" {
			return nobody, ""
		}
		return byNamespace, InvalidNamespace
	case !valid(pod):
		return byPod, InvalidPod
	case pod == "disabled":
		return nobody, ""
	case pod != "":
		return byPod, ""
	case namespace == "enabled" || namespace == "ingress":
		return byNamespace, ""
	}
	return nobody, ""
}

func valid(value string) bool {
	switch value {
	case "", "enabled", "disabled", "ingress":
		return true
	}
	return false
}

func hasSidecar(pod *corev1.Pod) bool {
	for _, c := range shape.Containers(pod) {
		switch c.Name {
		case "istio-proxy", "linkerd-init", "istio-init":
			return true
		}
		if SidecarImage(c.Image) {
			return true
		}
	}
	return false
}
