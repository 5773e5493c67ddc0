package kube

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/watcher/internal/census"
	"github.com/weftmesh/weft/services/watcher/internal/dir"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// TestTrimKeepsWhatShapeReads: on every object of shape's golden files, shaping
// the trimmed object gives the same rows and problems.
func TestTrimKeepsWhatShapeReads(t *testing.T) {
	files, err := filepath.Glob("../shape/testdata/rows/*.txtar")
	if err != nil || len(files) < 5 {
		t.Fatalf("shape's golden files have moved: %v, %v", files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range txtar.Parse(raw).Files {
			if f.Name == "in.yaml" {
				for _, it := range dir.Parse(f.Data).Items {
					checkTrim(t, it)
				}
			}
		}
	}
}

func checkTrim(t *testing.T, it dir.Item) {
	t.Helper()
	none := func(shape.ID) metav1.Object { return nil }
	once, err := trim(it.ID.Kind)(it.Obj)
	if err != nil {
		t.Fatalf("%v: %v", it.ID, err)
	}
	twice, err := trim(it.ID.Kind)(once)
	if err != nil {
		t.Fatalf("%v: %v", it.ID, err)
	}
	if diff := cmp.Diff(once, twice); diff != "" {
		t.Errorf("%v: trimming twice makes a difference:\n%s", it.ID, diff)
	}
	want, wantPart, wantWrong := shape.Rows(it.ID.Kind, it.Obj, none)
	got, part, wrong := shape.Rows(it.ID.Kind, once.(metav1.Object), none)
	if diff := cmp.Diff(wantPart, part); diff != "" {
		t.Errorf("%v: part:\n%s", it.ID, diff)
	}
	if diff := cmp.Diff(wantWrong, wrong); diff != "" {
		t.Errorf("%v: problem:\n%s", it.ID, diff)
	}
	if len(got) != len(want) {
		t.Fatalf("%v: %d rows of the trimmed object, want %d", it.ID, len(got), len(want))
	}
	for i := range want {
		if got[i].Key != want[i].Key || string(bus.Encode(got[i].Message)) != string(bus.Encode(want[i].Message)) {
			t.Errorf("%v: row of the trimmed object\n%v, want\n%v", it.ID, got[i], want[i])
		}
	}
}

func TestTrimDropsTheRest(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: meta("p")}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
	pod.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{…}"}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v"}}
	pod.Spec.Containers = []corev1.Container{{Name: "a", Image: "x", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "secret"}}}}
	before := pod.DeepCopy()
	got, err := trim(shape.Pod)(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Pod{ObjectMeta: meta("p"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trimmed pod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Errorf("the given pod was changed:\n%s", diff)
	}
}

func TestTrimLeavesTombstones(t *testing.T) {
	gone := cache.DeletedFinalStateUnknown{Key: "a/b", Obj: nil}
	got, err := trim(shape.Pod)(gone)
	if err != nil || got != any(gone) {
		t.Errorf("trim(%v) = %v, %v", gone, got, err)
	}
	named := ""
	h := handler{kind: shape.Pod, add: func(id shape.ID, _ time.Time) { named = id.String() }}
	h.OnDelete(gone)
	if named != "Pod a/b" {
		t.Errorf("named %q, want Pod a/b", named)
	}
}

// TestTrimKeepsWhatTheCensusReads: of the trimmed namespace and pod the same is
// said, trimmed twice or never.
func TestTrimKeepsWhatTheCensusReads(t *testing.T) {
	created := metav1.NewTime(time.Unix(1000, 0))
	later := metav1.NewTime(time.Unix(2000, 0))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "grove", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"linkerd.io/inject": "enabled"},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "x", Time: &created},
			{Manager: "kubectl", Time: &later, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:linkerd.io/inject":{}}}}`)},
		},
	}}
	off := ns.DeepCopy()
	off.Labels["config.linkerd.io/admission-webhooks"] = "disabled"
	plain := &corev1.Pod{ObjectMeta: meta("p"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "app:1"}}}}
	plain.CreationTimestamp = created
	other := plain.DeepCopy()
	other.Spec.Containers[0].Image = "gcr.io/istio-release/proxyv2:1"
	host := plain.DeepCopy()
	host.Spec.HostNetwork = true
	windows := plain.DeepCopy()
	windows.Spec.NodeSelector = map[string]string{"kubernetes.io/os": "windows", "zone": "a"}
	twice := func(kind shape.Kind, obj any) any {
		for range 2 {
			next, err := trim(kind)(obj)
			must(t, err)
			obj = next
		}
		return obj
	}
	for _, c := range []struct {
		ns   *corev1.Namespace
		pod  *corev1.Pod
		want census.Reason
	}{{ns, plain, census.Older}, {ns, other, census.SidecarExists}, {ns, host, census.HostNetwork}, {ns, windows, census.WindowsPod}, {off, plain, census.WebhooksDisabled}} {
		trimmed, pod := twice(shape.Namespace, c.ns).(*corev1.Namespace), twice(shape.Pod, c.pod).(*corev1.Pod)
		if got := census.Judge(trimmed, pod); len(got) != 1 || got[0] != c.want {
			t.Errorf("%v of the trimmed, want %s", got, c.want)
		}
		if len(trimmed.Labels) > 1 || len(trimmed.ManagedFields) > 1 || trimmed.ManagedFields[0].Manager != "" {
			t.Errorf("trimmed namespace %+v", trimmed)
		}
	}
}
