package shape

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Lookup finds an object by its name; nil when it is not known (yet).
type Lookup func(ID) metav1.Object

// Parent names the ReplicaSet or Job that must be looked up to learn who owns a
// pod. When that object changes, the pod's rows must be made again.
func Parent(pod metav1.Object) (ID, bool) {
	owner, ok := onlyOwner(pod)
	if !ok {
		return ID{}, false
	}
	switch owner.Kind {
	case string(ReplicaSet):
		return ID{ReplicaSet, pod.GetNamespace(), owner.Name}, true
	case string(Job):
		return ID{Job, pod.GetNamespace(), owner.Name}, true
	}
	return ID{}, false
}

// ownerOf is the pod's top owner (spec section 2.5): nothing above it or more
// than one owner means the pod itself; a ReplicaSet gives way to its Deployment
// and a Job to its CronJob where these are known.
func ownerOf(pod metav1.Object, look Lookup) *busv1.Owner {
	owner, ok := TopOwner(pod, look)
	if !ok {
		return &busv1.Owner{Kind: "pod", Name: pod.GetName()}
	}
	return &busv1.Owner{Kind: strings.ToLower(owner.Kind), Name: owner.Name}
}

// TopOwner refers to the workload that a pod belongs to, as ownerOf finds it;
// false when nothing, or more than one thing, is above the pod.
func TopOwner(pod metav1.Object, look Lookup) (metav1.OwnerReference, bool) {
	owner, ok := onlyOwner(pod)
	if !ok {
		return metav1.OwnerReference{}, false
	}
	if id, ok := Parent(pod); ok {
		if parent := look(id); parent != nil {
			if top, ok := onlyOwner(parent); ok && (id.Kind == Job || replicaSetOwner(top.Kind)) {
				owner = top
			}
		}
	}
	return owner, true
}

// replicaSetOwner tells whether Linkerd takes a ReplicaSet's owner for the
// workload. Others (an Argo Rollout, say) leave the ReplicaSet in its place.
func replicaSetOwner(kind string) bool {
	switch strings.ToLower(kind) {
	case "deployment", "statefulset", "daemonset", "job":
		return true
	}
	return false
}

func onlyOwner(obj metav1.Object) (metav1.OwnerReference, bool) {
	refs := obj.GetOwnerReferences()
	if len(refs) != 1 || refs[0].Kind == "" || refs[0].Name == "" {
		return metav1.OwnerReference{}, false
	}
	return refs[0], true
}
