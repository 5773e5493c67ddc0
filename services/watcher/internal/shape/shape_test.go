package shape

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/bus"
)

func nobody(ID) metav1.Object { return nil }

// TestChangeKey (complaints A37, A38) mutates a pod field by field: what an
// output reads changes the rows, all else is silent.
func TestChangeKey(t *testing.T) {
	pod := func() *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "grove", UID: "u", ResourceVersion: "1", Labels: map[string]string{"app": "x"}},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{
					Name: "a", Image: "x:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
					ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/r"}}},
				}},
			},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: "10.0.0.1", HostIP: "192.0.2.1",
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		}
	}
	rows := func(p *corev1.Pod) string {
		rows, _, wrong := Rows(Pod, p, nobody)
		if wrong != nil {
			t.Fatal(wrong)
		}
		var out string
		for _, r := range rows {
			out += r.Key + "=" + string(bus.Encode(r.Message)) + ";"
		}
		return out
	}
	was := rows(pod())
	for name, mutate := range map[string]func(*corev1.Pod){
		"uid":             func(p *corev1.Pod) { p.UID = "v" },
		"label":           func(p *corev1.Pod) { p.Labels["tier"] = "db" },
		"pod label":       func(p *corev1.Pod) { p.Labels["apps.kubernetes.io/pod-index"] = "1" },
		"mesh annotation": func(p *corev1.Pod) { p.Annotations = map[string]string{"config.linkerd.io/opaque-ports": ""} },
		"owner": func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "s"}}
		},
		"account":      func(p *corev1.Pod) { p.Spec.ServiceAccountName = "amy" },
		"node":         func(p *corev1.Pod) { p.Spec.NodeName = "vm" },
		"host network": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"port":         func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 81 },
		"port name":    func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].Name = "web" },
		"host port":    func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].HostPort = 81 },
		"probe":        func(p *corev1.Pod) { p.Spec.Containers[0].ReadinessProbe.HTTPGet.Path = "/s" },
		"proxy":        func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: ProxyContainer}} },
		"ip":           func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.2" },
		"second ip":    func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}} },
		"host ip":      func(p *corev1.Pod) { p.Status.HostIP = "192.0.2.2" },
		"phase":        func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"ready":        func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse },
		"terminating":  func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
	} {
		p := pod()
		mutate(p)
		if rows(p) == was {
			t.Errorf("%s: the rows are the same", name)
		}
	}
	for name, mutate := range map[string]func(*corev1.Pod){
		"resourceVersion":  func(p *corev1.Pod) { p.ResourceVersion = "2" },
		"generation":       func(p *corev1.Pod) { p.Generation = 7 },
		"other annotation": func(p *corev1.Pod) { p.Annotations = map[string]string{"example.org/x": "y"} },
		"managed fields":   func(p *corev1.Pod) { p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}} },
		"image":            func(p *corev1.Pod) { p.Spec.Containers[0].Image = "x:2" },
		"environment": func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: envInbound, Value: "0.0.0.0:1"}}
		},
		"query of a probe": func(p *corev1.Pod) { p.Spec.Containers[0].ReadinessProbe.HTTPGet.Path = "/r?x=1" },
		"other condition": func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled})
		},
		"transition":   func(p *corev1.Pod) { p.Status.Conditions[0].Message = "x" },
		"pod ip twice": func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}} },
	} {
		p := pod()
		mutate(p)
		if rows(p) != was {
			t.Errorf("%s: the rows differ", name)
		}
	}
}

// TestRowsLeaveTheObjectAlone: objects come from caches that others read.
func TestRowsLeaveTheObjectAlone(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "grove", Labels: map[string]string{"a": "b", "apps.kubernetes.io/pod-index": "1"}}}
	before := pod.DeepCopy()
	if _, _, wrong := Rows(Pod, pod, nobody); wrong != nil {
		t.Fatal(wrong)
	}
	if before.String() != pod.String() {
		t.Errorf("the pod was changed from\n%v to\n%v", before, pod)
	}
}

func TestLongRunning(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	never := corev1.ContainerRestartPolicyNever
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "setup"}, {Name: "side", RestartPolicy: &always}, {Name: "once", RestartPolicy: &never}},
		Containers:     []corev1.Container{{Name: "main"}, {Name: "other"}},
	}}
	var got string
	for c := range LongRunning(pod) {
		got += c.Name + " "
	}
	if want := "side main other "; got != want {
		t.Errorf("LongRunning() = %q, want %q", got, want)
	}
	got = ""
	for at := range Containers(pod) {
		got += at + " "
		if at == "spec.containers[0]" {
			break
		}
	}
	if want := "spec.initContainers[0] spec.initContainers[1] spec.initContainers[2] spec.containers[0] "; got != want {
		t.Errorf("Containers() = %q, want %q", got, want)
	}
}

func TestFind(t *testing.T) {
	for _, test := range []struct {
		apiVersion, kind string
		known            bool
		wrong            string
	}{
		{"v1", "Pod", true, ""},
		{"policy.linkerd.io/v1beta1", "Server", true, ""},
		{"policy.linkerd.io/v1alpha1", "Server", true, `version "v1alpha1" is not read; write v1beta3`},
		{"example.org/v1beta1", "Server", false, ""},
		{"v1", "Secret", false, ""},
		{"", "", false, ""},
	} {
		_, known, wrong := Find(test.apiVersion, test.kind)
		if known != test.known || wrong != test.wrong {
			t.Errorf("Find(%q, %q) = %t, %q; want %t, %q", test.apiVersion, test.kind, known, wrong, test.known, test.wrong)
		}
	}
}

func ExampleRows() {
	server := Decode(Servers, []byte(`{
		"metadata": {"name": "web", "namespace": "grove"},
		"spec": {"podSelector": {}, "port": 70000}
	}`))
	_, _, wrong := Rows(Servers, server, nobody)
	fmt.Println(wrong)
	// Output: Server grove/web: spec.port: 70000 is not between 1 and 65535
}

// TestNamesInMessagesAreBounded: a file may name an object with a novel.
func TestNamesInMessagesAreBounded(t *testing.T) {
	id := ID{Kind: Pod, Namespace: strings.Repeat("é", 1000), Name: strings.Repeat("n", 60_000)}
	if got := id.String(); len(got) > 550 || !utf8.ValidString(got) {
		t.Errorf("String() has %d bytes", len(got))
	}
}
