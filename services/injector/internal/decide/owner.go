package decide

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Owner is what a pod belongs to, as far as the pod itself tells.
type Owner struct {
	Kind string // lower case; empty when the pod has no owner
	Name string
}

// OwnerOf reads the owner from the pod. A ReplicaSet that a Deployment made is
// known by its name: the Deployment's, a dash, and the hash that the pod also
// carries as a label. A Job's CronJob cannot be known from here.
func OwnerOf(pod *corev1.Pod) Owner {
	refs := pod.OwnerReferences
	if len(refs) == 0 {
		return Owner{}
	}
	ref := refs[0]
	if c := metav1.GetControllerOf(pod); c != nil {
		ref = *c
	} else if len(refs) > 1 {
		return Owner{}
	}
	owner := Owner{Kind: strings.ToLower(ref.Kind), Name: ref.Name}
	if hash := pod.Labels["pod-template-hash"]; owner.Kind == "replicaset" && hash != "" {
		if name, ok := strings.CutSuffix(ref.Name, "-"+hash); ok && name != "" {
			return Owner{Kind: "deployment", Name: name}
		}
	}
	return owner
}
