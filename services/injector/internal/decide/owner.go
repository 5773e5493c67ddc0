package decide

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Owner is what a pod belongs to, as far as the pod itself tells.
type Owner struct {
	Kind string // lower case; empty when the pod has no owner
	Name string
}

// OwnerOf reads the top owner from the pod alone: nobody is asked.
//
// A ReplicaSet that a Deployment made is named after it, a dash and the hash
// that its pods carry as a label. A Job that a CronJob made is named after it, a
// dash and the minute for which it was due.
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
	switch owner.Kind {
	case "replicaset":
		if name, ok := deployment(ref.Name, pod.Labels); ok {
			return Owner{Kind: "deployment", Name: name}
		}
	case "job":
		if m := scheduled.FindStringSubmatch(ref.Name); m != nil {
			return Owner{Kind: "cronjob", Name: m[1]}
		}
	}
	return owner
}

var (
	// The Deployment controller writes a 32-bit number in decimal, each digit as
	// a letter of SafeEncodeString (k8s.io/apimachinery/pkg/util/rand).
	hashed = regexp.MustCompile(`^(.+)-([4-9bcdf]{1,10})$`)
	// The CronJob controller writes the minutes since 1970: 26 million were over
	// in 2019, above the dates of this century (20261130).
	scheduled = regexp.MustCompile(`^(.+)-(2[6-9]\d{6}|[3-9]\d{7})$`)
)

// deployment is the one that made a ReplicaSet, if one did. Every pod of a
// Deployment has the label; only if nobody else's hash explains its absence, the
// name alone is believed, and only if it looks like nothing else.
func deployment(replicaSet string, labels map[string]string) (string, bool) {
	if hash := labels["pod-template-hash"]; hash != "" {
		name, ok := strings.CutSuffix(replicaSet, "-"+hash)
		return name, ok && name != ""
	}
	if labels["rollouts-pod-template-hash"] != "" {
		return "", false // Argo Rollouts, which Linkerd doesn't look behind
	}
	m := hashed.FindStringSubmatch(replicaSet)
	if m == nil || !strings.ContainsAny(m[2], "456789") || !strings.ContainsAny(m[2], "bcdf") {
		return "", false
	}
	return m[1], true
}
