package census

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// pod makes one from words: inject=…, host, has=container, init=container,
// image=…, phase=…, label=…, ending, age=…, owner=Kind/name.
func pod(t testing.TB, name, words string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "grove", UID: types.UID("pod-" + name),
			CreationTimestamp: metav1.NewTime(now.Add(-time.Minute)),
			Annotations:       map[string]string{}, Labels: map[string]string{},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
	}
	for w := range strings.FieldsSeq(words) {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "ns":
			p.Namespace = value
		case "inject":
			p.Annotations[inject] = value
		case "host":
			p.Spec.HostNetwork = true
		case "os":
			p.Spec.OS = &corev1.PodOS{Name: corev1.OSName(value)}
		case "on":
			p.Spec.NodeSelector = map[string]string{"kubernetes.io/os": value}
		case "near":
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "beta.kubernetes.io/os", Operator: corev1.NodeSelectorOpIn, Values: strings.Split(value, ",")},
				}}},
			}}}
		case "has":
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: value})
		case "init":
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: value})
		case "image":
			p.Spec.Containers[0].Image = value
		case "phase":
			p.Status.Phase = corev1.PodPhase(value)
		case "label":
			p.Labels[value] = "x"
		case "revision":
			p.Labels["controller-revision-hash"] = value
		case "ending":
			p.DeletionTimestamp = &metav1.Time{Time: now}
		case "age":
			d, err := time.ParseDuration(value)
			if err != nil {
				t.Fatal(err)
			}
			p.CreationTimestamp = metav1.NewTime(now.Add(-d))
		case "owner":
			p.OwnerReferences = append(p.OwnerReferences, ref(value))
		default:
			t.Fatalf("what is %q?", w)
		}
	}
	return p
}

func ref(owner string) metav1.OwnerReference {
	kind, name, _ := strings.Cut(owner, "/")
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID(kind + "-" + name)}
}

func namespace(name, words string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}, Labels: map[string]string{}}}
	for w := range strings.FieldsSeq(words) {
		if value, ok := strings.CutPrefix(w, "inject="); ok {
			n.Annotations[inject] = value
		} else {
			n.Labels[labelWebhooks] = w
		}
	}
	return n
}

func TestJudge(t *testing.T) {
	for _, c := range []struct{ namespace, pod, want string }{
		{"", "", ""},
		{"inject=enabled", "", "not_injected"},
		{"inject=ingress", "", "not_injected"},
		{"inject=disabled", "", ""},
		{"", "inject=enabled", "webhook_not_answered"},
		{"", "inject=ingress", "webhook_not_answered"},
		{"inject=disabled", "inject=enabled", "webhook_not_answered"},
		{"inject=enabled", "inject=enabled", "webhook_not_answered"},
		{"inject=enabled", "inject=disabled", ""},
		{"inject=yes", "", "invalid_inject_annotation_at_ns"},
		{"inject=yes", "inject=enabled", "invalid_inject_annotation_at_ns"},
		{"inject=yes", "inject=disabled", ""},
		{"inject=enabled", "inject=true", "invalid_inject_annotation_at_workload"},
		{"", "inject=true", "invalid_inject_annotation_at_workload"},
		{"inject=enabled", "has=linkerd-proxy", ""},
		{"inject=enabled", "init=linkerd-proxy", ""},
		{"inject=enabled", "has=linkerd-proxy host", ""},
		{"inject=enabled", "host", "host_network_enabled"},
		{"", "host", ""},
		{"inject=enabled", "host has=istio-proxy", "host_network_enabled,sidecar_already_exists"},
		{"inject=enabled", "host inject=on", "host_network_enabled,invalid_inject_annotation_at_workload"},
		{"inject=enabled", "init=istio-init", "sidecar_already_exists"},
		{"inject=enabled", "init=linkerd-init", "sidecar_already_exists"},
		{"inject=enabled", "image=gcr.io/istio-release/proxyv2:1.24", "sidecar_already_exists"},
		{"inject=enabled", "image=cr.l5d.io/linkerd/proxy:edge", "sidecar_already_exists"},
		{"inject=enabled", "os=windows", "windows_pod"},
		{"inject=enabled", "on=windows", "windows_pod"},
		{"inject=enabled", "near=windows host", "host_network_enabled,windows_pod"},
		{"inject=enabled", "near=windows,linux", "not_injected"},
		{"inject=enabled", "os=linux on=windows", "not_injected"},
		{"", "os=windows", ""},
		{"inject=enabled disabled", "", "admission_webhooks_disabled"},
		{"disabled", "inject=enabled host", "host_network_enabled,admission_webhooks_disabled"},
		{"inject=enabled", "ns=kube-system", "namespace_exempt"},
		{"inject=enabled", "phase=Running", "not_injected"},
		{"inject=enabled", "phase=Succeeded", ""},
		{"inject=enabled", "phase=Failed", ""},
		{"inject=enabled", "ending", ""},
		{"inject=enabled", "label=linkerd.io/control-plane-component", ""},
		{"inject=enabled", "label=linkerd.io/cni-resource", ""},
	} {
		p := pod(t, "p", c.pod)
		var got []string
		for _, r := range Judge(namespace(p.Namespace, c.namespace), p) {
			if !slices.Contains(Reasons, r) || text[r] == "" {
				t.Errorf("reason %q is not on the list or has no words", r)
			}
			got = append(got, string(r))
		}
		if g := strings.Join(got, ","); g != c.want {
			t.Errorf("namespace %q, pod %q: %q, want %q", c.namespace, c.pod, g, c.want)
		}
	}
	if got := Judge(nil, pod(t, "p", "inject=enabled")); len(got) != 1 {
		t.Errorf("without a namespace: %v", got)
	}
}

// TestOlderThanTheAnnotation: the API server's word for when it was written.
func TestOlderThanTheAnnotation(t *testing.T) {
	entry := func(age time.Duration, fields string) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(now.Add(-age))
		return metav1.ManagedFieldsEntry{Time: &at, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const ours = `{"f:metadata":{"f:annotations":{".":{},"f:linkerd.io/inject":{}}}}`
	for name, c := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   Reason
	}{
		"nothing known":      {nil, NotInjected},
		"no time (A17)":      {[]metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(ours)}}, NotInjected},
		"no fields":          {[]metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: now}}}, NotInjected},
		"written before":     {[]metav1.ManagedFieldsEntry{entry(time.Hour, ours)}, NotInjected},
		"written after":      {[]metav1.ManagedFieldsEntry{entry(time.Second, ours)}, Older},
		"another annotation": {[]metav1.ManagedFieldsEntry{entry(time.Second, `{"f:metadata":{"f:annotations":{"f:linkerd.io/inject-x":{}}}}`)}, NotInjected},
		"two writers":        {[]metav1.ManagedFieldsEntry{entry(time.Hour, ours), entry(time.Second, ours)}, Older},
	} {
		ns := namespace("grove", "inject=enabled")
		ns.ManagedFields = c.fields
		if at := Annotated(ns); at == nil {
			ns.ManagedFields = nil
		} else {
			ns.ManagedFields = []metav1.ManagedFieldsEntry{{Time: at}}
		}
		if got := Judge(ns, pod(t, "p", "")); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

// cluster looks objects up; ReplicaSet web-1 belongs to Deployment web.
func cluster(namespaceWords string) shape.Lookup {
	return func(id shape.ID) metav1.Object {
		switch id.Kind {
		case shape.Namespace:
			return namespace(id.Name, namespaceWords)
		case shape.ReplicaSet:
			if deployment, _, ok := strings.Cut(id.Name, "-"); ok {
				return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{ref("Deployment/" + deployment)}}}
			}
		}
		return nil
	}
}

func all(Key, bool) bool { return true }

func describe(r Result) []string {
	var out []string
	for _, n := range r.Notices {
		kind := "normal"
		if n.Warning {
			kind = "warning"
		}
		out = append(out, fmt.Sprintf("%s %s/%s %s %d", kind, n.About.Kind, n.About.Name, n.About.UID, n.Pods))
	}
	slices.Sort(out)
	return out
}

func TestTake(t *testing.T) {
	pods := []*corev1.Pod{
		pod(t, "web-1-a", "owner=ReplicaSet/web-1"),
		pod(t, "web-1-b", "owner=ReplicaSet/web-1"),
		pod(t, "web-2-a", "owner=ReplicaSet/web-2"), // one owner, one notice
		pod(t, "web-2-b", "owner=ReplicaSet/web-2 host"),
		pod(t, "alone", ""),
		pod(t, "two", "owner=A/a owner=B/b"),
		pod(t, "off", "inject=disabled"),
		pod(t, "late", "owner=ReplicaSet/unknown age=5s"),
		pod(t, "later", "owner=ReplicaSet/unknown age=20s"),
		// The meshed.
		pod(t, "db-0", "owner=StatefulSet/db revision=1 has=linkerd-proxy"),
		pod(t, "db-1", "owner=StatefulSet/db revision=1 has=linkerd-proxy"),
		pod(t, "db-2", "owner=StatefulSet/db revision=2 has=linkerd-proxy"),
		pod(t, "api-1-a", "owner=ReplicaSet/api-1 init=linkerd-proxy"),
		pod(t, "api-2-a", "owner=ReplicaSet/api-2 init=linkerd-proxy"),
		pod(t, "old", "owner=DaemonSet/old has=linkerd-proxy age=1h"),
		pod(t, "lone", "has=linkerd-proxy"),
		pod(t, "control", "owner=ReplicaSet/dst-1 has=linkerd-proxy label=linkerd.io/control-plane-component"),
	}
	got := Take(slices.Values(pods), cluster("inject=enabled"), now, 100, all)
	want := []string{
		"normal Deployment/api Deployment-api 1",
		"normal Deployment/api Deployment-api 1",
		"normal StatefulSet/db StatefulSet-db 1",
		"normal StatefulSet/db StatefulSet-db 2",
		"warning Deployment/web Deployment-web 1",
		"warning Deployment/web Deployment-web 3",
		"warning Pod/alone pod-alone 1",
		"warning Pod/two pod-two 1",
		"warning ReplicaSet/unknown ReplicaSet-unknown 1",
	}
	if diff := cmp.Diff(want, describe(got)); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[Reason]int{NotInjected: 7, HostNetwork: 1}, got.Unmeshed); diff != "" {
		t.Errorf("unmeshed (-want +got):\n%s", diff)
	}
	slices.Reverse(pods)
	if diff := cmp.Diff(want, describe(Take(slices.Values(pods), cluster("inject=enabled"), now, 100, all))); diff != "" {
		t.Errorf("in another order (-want +got):\n%s", diff)
	}
	few := Take(slices.Values(pods), cluster("inject=enabled"), now, 2, all)
	if len(few.Notices) != 2 || few.Unmeshed[NotInjected] != 7 {
		t.Errorf("%d notices of at most 2, %v counted", len(few.Notices), few.Unmeshed)
	}
	none := Take(slices.Values(pods), cluster("inject=enabled"), now, 100, func(Key, bool) bool { return false })
	if len(none.Notices) != 0 || none.Unmeshed[NotInjected] != 7 {
		t.Errorf("%d notices that nobody wants, %v counted", len(none.Notices), none.Unmeshed)
	}
}

func TestWords(t *testing.T) {
	got := Take(slices.Values([]*corev1.Pod{pod(t, "a", "host has=istio-proxy")}), cluster("inject=enabled"), now, 1, all).Notices[0].Text
	if want := "Linkerd sidecar proxy injection skipped: hostNetwork is enabled, pod has a sidecar injected already"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}

// BenchmarkTake is a look at 10,000 pods of which nothing is to be told.
func BenchmarkTake(b *testing.B) {
	var pods []*corev1.Pod
	for i := range 10000 {
		pods = append(pods, pod(b, fmt.Sprint(i), fmt.Sprintf("owner=ReplicaSet/web-%d has=linkerd-proxy age=1h", i/10)))
	}
	look := cluster("inject=enabled")
	ns := look(shape.ID{Kind: shape.Namespace, Name: "grove"})
	b.ReportAllocs()
	for b.Loop() {
		Take(slices.Values(pods), func(shape.ID) metav1.Object { return ns }, now, 100, all)
	}
}
