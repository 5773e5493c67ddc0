package decide

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lean is the part of a pod, or of a pod template, that any rule looks at.
// Quantities are not among it: 1E-999999999 is one, and takes Kubernetes'
// parser minutes and a gigabyte.
type lean struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		OS                           *corev1.PodOS     `json:"os"`
		NodeSelector                 map[string]string `json:"nodeSelector"`
		Affinity                     *corev1.Affinity  `json:"affinity"`
		HostNetwork                  bool              `json:"hostNetwork"`
		AutomountServiceAccountToken *bool             `json:"automountServiceAccountToken"`
		Volumes                      []json.RawMessage `json:"volumes"`
		InitContainers               []leanContainer   `json:"initContainers"`
		Containers                   []leanContainer   `json:"containers"`
	} `json:"spec"`
}

type leanContainer struct {
	Name            string                  `json:"name"`
	Image           string                  `json:"image"`
	Ports           []corev1.ContainerPort  `json:"ports"`
	VolumeMounts    []corev1.VolumeMount    `json:"volumeMounts"`
	LivenessProbe   *corev1.Probe           `json:"livenessProbe"`
	ReadinessProbe  *corev1.Probe           `json:"readinessProbe"`
	SecurityContext *corev1.SecurityContext `json:"securityContext"`
}

// Read decodes a pod or a pod template (JSON), as far as the rules look at it.
// Of its volumes, only their number is kept.
func Read(raw []byte) (*corev1.Pod, error) {
	var in lean
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, err
	}
	out := &corev1.Pod{ObjectMeta: in.Metadata}
	out.Spec.OS, out.Spec.NodeSelector, out.Spec.Affinity = in.Spec.OS, in.Spec.NodeSelector, in.Spec.Affinity
	out.Spec.HostNetwork = in.Spec.HostNetwork
	out.Spec.AutomountServiceAccountToken = in.Spec.AutomountServiceAccountToken
	out.Spec.InitContainers = containers(in.Spec.InitContainers)
	out.Spec.Containers = containers(in.Spec.Containers)
	if in.Spec.Volumes != nil {
		out.Spec.Volumes = make([]corev1.Volume, len(in.Spec.Volumes))
	}
	return out, nil
}

func containers(in []leanContainer) []corev1.Container {
	if in == nil {
		return nil
	}
	out := make([]corev1.Container, len(in))
	for i, c := range in {
		out[i] = corev1.Container{
			Name: c.Name, Image: c.Image, Ports: c.Ports, VolumeMounts: c.VolumeMounts,
			LivenessProbe: c.LivenessProbe, ReadinessProbe: c.ReadinessProbe, SecurityContext: c.SecurityContext,
		}
	}
	return out
}
