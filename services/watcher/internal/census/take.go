package census

import (
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// Key names one thing that is worth telling, the same in every process.
type Key [12]byte

// Notice is what the owner of some pods is to be told.
type Notice struct {
	Key Key
	// Warning: the pods have no proxy; else they have one.
	Warning bool
	About   corev1.ObjectReference
	Text    string
	// Pods is how many it is about.
	Pods int
}

// Result is one census.
type Result struct {
	// Unmeshed counts the pods that should have a proxy and have none, by the
	// weightiest reason.
	Unmeshed map[Reason]int
	// Notices are those that were asked for, at most the number given.
	Notices []Notice
}

// Limits of one census.
const (
	// young is how old a pod may be for its proxy to be news. Whatever is older
	// was told of by somebody before.
	young = 5 * time.Minute
	// orphaned is how long a ReplicaSet or Job that is not known yet is waited for.
	orphaned = 15 * time.Second
)

// Take counts the pods. news tells whether a notice is wanted; it is asked once
// or more for each. most bounds the notices.
func Take(pods iter.Seq[*corev1.Pod], look shape.Lookup, now time.Time, most int, news func(Key, bool) bool) Result {
	out := Result{Unmeshed: make(map[Reason]int)}
	at := make(map[Key]int)
	for pod := range pods {
		why := Judge(look(shape.ID{Kind: shape.Namespace, Name: pod.Namespace}), pod)
		if len(why) > 0 {
			out.Unmeshed[why[0]]++
		} else if !comesUpMeshed(pod, now) {
			continue
		}
		about, ok := owner(pod, look, now, len(why) > 0)
		if !ok {
			continue
		}
		n := Notice{Warning: len(why) > 0, About: about, Pods: 1}
		n.Key = key(about.UID, why, pod)
		if i, in := at[n.Key]; in {
			out.Notices[i].Pods++
			continue
		}
		if !news(n.Key, n.Warning) || len(out.Notices) == most {
			continue
		}
		n.Text = words(why)
		at[n.Key] = len(out.Notices)
		out.Notices = append(out.Notices, n)
	}
	return out
}

func comesUpMeshed(pod *corev1.Pod, now time.Time) bool {
	return now.Sub(pod.CreationTimestamp.Time) < young && shape.Meshed(pod) && !ours(pod) && pod.DeletionTimestamp == nil &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// owner refers to what an event about the pod is filed under: its workload, or,
// for a warning about a pod that has none, the pod.
func owner(pod *corev1.Pod, look shape.Lookup, now time.Time, warning bool) (corev1.ObjectReference, bool) {
	if id, ok := shape.Parent(pod); ok && look(id) == nil && now.Sub(pod.CreationTimestamp.Time) < orphaned {
		return corev1.ObjectReference{}, false
	}
	if top, ok := shape.TopOwner(pod, look); ok {
		return corev1.ObjectReference{APIVersion: top.APIVersion, Kind: top.Kind, Namespace: pod.Namespace, Name: top.Name, UID: top.UID}, true
	}
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, warning
}

// key is made of the owner and, for a warning, the reasons; else the template.
func key(owner types.UID, why []Reason, pod *corev1.Pod) Key {
	h := sha256.New()
	part := func(s string) {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	part(string(owner))
	for _, r := range why {
		part(string(r))
	}
	if len(why) == 0 {
		// A ReplicaSet or Job is a template; other workloads label their pods.
		for _, ref := range pod.OwnerReferences {
			part(string(ref.UID))
		}
		part(pod.Labels["controller-revision-hash"])
	}
	return Key(h.Sum(nil)[:len(Key{})])
}

// String is how the key looks in an object's name.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

func words(why []Reason) string {
	if len(why) == 0 {
		return "Linkerd sidecar proxy injected"
	}
	all := make([]string, len(why))
	for i, r := range why {
		all[i] = text[r]
	}
	return "Linkerd sidecar proxy injection skipped: " + strings.Join(all, ", ")
}
