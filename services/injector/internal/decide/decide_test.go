package decide_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftmesh/weft/services/injector/internal/decide"
	"github.com/weftmesh/weft/services/injector/internal/values"
)

func pod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example/kiln:1"}}}}
	if change != nil {
		change(p)
	}
	return p
}

func inject(value string) map[string]string {
	if value == "-" {
		return nil
	}
	return map[string]string{decide.InjectAnnotation: value}
}

func ExamplePod() {
	p := pod(func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	fmt.Println(decide.Pod(p, nil, values.Default("v1")).Reasons)
	// Output: [host_network_enabled injection_enable_annotation_absent]
}

// The whole table of annotations: namespace down, pod across.
func TestPodByAnnotation(t *testing.T) {
	yesNS, yesPod, off, absent := "namespace", "workload", decide.DisabledAtWorkload, decide.NotEnabled
	badNS, badPod := decide.InvalidAtNamespace, decide.InvalidAtWorkload
	kinds := []string{"-", "", "enabled", "disabled", "ingress", "Enabled"}
	table := map[string][]string{
		"-":        {absent, absent, yesPod, absent, yesPod, badPod},
		"":         {absent, absent, yesPod, absent, yesPod, badPod},
		"enabled":  {yesNS, yesNS, yesNS, off, yesNS, badPod},
		"disabled": {absent, absent, yesPod, absent, yesPod, badPod},
		"ingress":  {yesNS, yesNS, yesNS, off, yesNS, badPod},
		"always":   {badNS, badNS, badNS, badNS, badNS, badNS},
	}
	for namespace, row := range table {
		for i, own := range kinds {
			p := pod(func(p *corev1.Pod) { p.Annotations = inject(own) })
			v := decide.Pod(p, inject(namespace), values.Default("v1"))
			got := strings.Join(v.Reasons, ",")
			if v.Inject() {
				got = v.At
			}
			if got != row[i] {
				t.Errorf("namespace %q, pod %q: %s, want %s", namespace, own, got, row[i])
			}
		}
	}
}

func TestPodReasons(t *testing.T) {
	enabled := inject("enabled")
	noProjection := values.Default("v1")
	noProjection.Identity.ServiceAccountTokenProjection = false
	no := false
	mounted := func(p *corev1.Pod) {
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "t", MountPath: decide.AccountMount}}
	}
	container := func(name, image string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: image})
		}
	}
	initial := func(name, image string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: name, Image: image}} }
	}
	selector := func(label, system string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{label: system} }
	}
	terms := func(systems ...string) func(*corev1.Pod) {
		var out []corev1.NodeSelectorTerm
		for _, s := range systems {
			out = append(out, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "zone", Operator: corev1.NodeSelectorOpExists},
				{Key: "kubernetes.io/os", Operator: corev1.NodeSelectorOpIn, Values: strings.Split(s, ",")},
			}})
		}
		return func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: out},
			}}
		}
	}
	tests := []struct {
		name string
		in   func(*corev1.Pod)
		v    *values.Values
		want string
	}{
		{"nothing against it", nil, nil, ""},
		{"host network", func(p *corev1.Pod) { p.Spec.HostNetwork = true }, nil, decide.HostNetwork},
		{"our container", container("linkerd-proxy", "x"), nil, decide.SidecarExists},
		{"another mesh's container", container("istio-proxy", "x"), nil, decide.SidecarExists},
		{"Linkerd's image", container("p", "cr.l5d.io/linkerd/proxy:v1"), nil, decide.SidecarExists},
		{"our image", container("p", "ghcr.io/weftmesh/proxy:v1"), nil, decide.SidecarExists},
		{"an image that begins alike", container("p", "ghcr.io/weftmesh/proxy-stats:v1"), nil, ""},
		{"native sidecar", initial("linkerd-proxy", "x"), nil, decide.SidecarExists},
		{"init container", initial("linkerd-init", "x"), nil, decide.SidecarExists},
		{"init image", initial("i", "gcr.io/istio-release/proxy_init:1"), nil, decide.SidecarExists},
		{"the init name of an application container does not count", container("linkerd-init", "x"), nil, ""},
		{"host network and sidecar", func(p *corev1.Pod) {
			p.Spec.HostNetwork = true
			container("linkerd-proxy", "x")(p)
		}, nil, decide.HostNetwork + "," + decide.SidecarExists},
		{"Windows by its own word", func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }, nil, decide.WindowsPod},
		{"Windows by the node selector", selector("kubernetes.io/os", "windows"), nil, decide.WindowsPod},
		{"Windows by the old label", selector("beta.kubernetes.io/os", "windows"), nil, decide.WindowsPod},
		{"Windows by affinity", terms("windows", "windows"), nil, decide.WindowsPod},
		{"Linux by the node selector", selector("kubernetes.io/os", "linux"), nil, ""},
		{"one of two terms takes Linux", terms("windows", "linux"), nil, ""},
		{"either", terms("windows,linux"), nil, ""},
		{"no term", terms(), nil, ""},
		{"its own word beats the selector", func(p *corev1.Pod) {
			selector("kubernetes.io/os", "windows")(p)
			p.Spec.OS = &corev1.PodOS{Name: corev1.Linux}
		}, nil, ""},
		{"no token is needed with projection", func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = &no }, nil, ""},
		{"no automount", func(p *corev1.Pod) { mounted(p); p.Spec.AutomountServiceAccountToken = &no }, noProjection, decide.NoAccountToken},
		{"no mount", nil, noProjection, decide.NoAccountToken},
		{"a mount", mounted, noProjection, ""},
		{"no containers", func(p *corev1.Pod) { p.Spec.Containers = nil }, noProjection, decide.NoAccountToken},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := tt.v
			if v == nil {
				v = values.Default("v1")
			}
			if got := strings.Join(decide.Pod(pod(tt.in), enabled, v).Reasons, ","); got != tt.want {
				t.Errorf("Reasons = %q, want %q", got, tt.want)
			}
		})
	}
}

const list = "25,3306,4444-4446,9300"

func TestServiceDefaults(t *testing.T) {
	svc := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
		{Port: 9090, TargetPort: intstr.FromInt32(3306)},
		{Port: 25, TargetPort: intstr.FromInt32(2525)},
		{Port: 9300},
		{Port: 3306, TargetPort: intstr.FromString("db")},
		{Port: 4445},
		{Port: 9300, Protocol: corev1.ProtocolUDP},
	}}}
	if diff := cmp.Diff([]string{"9090", "9300"}, decide.ServiceDefaults(svc, list)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPodDefaults(t *testing.T) {
	p := pod(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 9300}}}}
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 25}, {ContainerPort: 9300}}
	})
	if diff := cmp.Diff([]string{"9300", "25"}, decide.PodDefaults(p, list)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOpaque(t *testing.T) {
	has := func(s string) map[string]string { return map[string]string{decide.OpaqueAnnotation: s} }
	tests := []struct {
		own, namespace map[string]string
		defaults       []string
		want           string
		ok             bool
	}{
		{nil, nil, nil, "", false},
		{nil, nil, []string{"25", "80"}, "25,80", true},
		{nil, has("1"), []string{"25"}, "1", true},
		{nil, has(""), []string{"25"}, "", true},
		{has("2"), has("1"), []string{"25"}, "", false},
		{has(""), has("1"), []string{"25"}, "", false},
	}
	for _, tt := range tests {
		if got, ok := decide.Opaque(tt.own, tt.namespace, tt.defaults); got != tt.want || ok != tt.ok {
			t.Errorf("Opaque(%v, %v, %v) = %q, %v, want %q, %v", tt.own, tt.namespace, tt.defaults, got, ok, tt.want, tt.ok)
		}
	}
}

func TestInherit(t *testing.T) {
	got := decide.Inherit(
		map[string]string{"config.linkerd.io/proxy-uid": "1"},
		map[string]string{
			"linkerd.io/inject":                                      "enabled",
			"config.linkerd.io/proxy-uid":                            "2",
			"config.linkerd.io/skip-subnets":                         "",
			"config.linkerd.io/enable-gateway":                       "true",
			"config.linkerd.io/close-wait-timeout":                   "1s",
			"resource.opentelemetry.io/service.name":                 "x",
			"config.alpha.linkerd.io/proxy-wait-before-exit-seconds": "3",
		})
	want := map[string]string{
		"linkerd.io/inject":                                      "enabled",
		"config.linkerd.io/skip-subnets":                         "",
		"config.alpha.linkerd.io/proxy-wait-before-exit-seconds": "3",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOwnerOf(t *testing.T) {
	yes := true
	tests := []struct {
		name string
		refs []metav1.OwnerReference
		hash string
		want decide.Owner
	}{
		{"nobody", nil, "", decide.Owner{}},
		{"a StatefulSet", []metav1.OwnerReference{{Kind: "StatefulSet", Name: "kiln"}}, "", decide.Owner{Kind: "statefulset", Name: "kiln"}},
		{"a Deployment's ReplicaSet", []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "kiln-5f7"}}, "5f7", decide.Owner{Kind: "deployment", Name: "kiln"}},
		{"a ReplicaSet with another hash", []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "kiln-5f7"}}, "aaa", decide.Owner{Kind: "replicaset", Name: "kiln-5f7"}},
		{"a ReplicaSet that is all hash", []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "-5f7"}}, "5f7", decide.Owner{Kind: "replicaset", Name: "-5f7"}},
		{"a ReplicaSet whose pods have no hash", []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "kiln-5f7"}}, "", decide.Owner{Kind: "deployment", Name: "kiln"}},
		{"a ReplicaSet that counts", []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "kiln-7"}}, "", decide.Owner{Kind: "replicaset", Name: "kiln-7"}},
		{"a ReplicaSet that spells", []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "kiln-db"}}, "", decide.Owner{Kind: "replicaset", Name: "kiln-db"}},
		{"a ReplicaSet with a version", []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "kiln-v4"}}, "", decide.Owner{Kind: "replicaset", Name: "kiln-v4"}},
		{"a Job by hand", []metav1.OwnerReference{{Kind: "Job", Name: "fire-3"}}, "", decide.Owner{Kind: "job", Name: "fire-3"}},
		{"a CronJob's Job", []metav1.OwnerReference{{Kind: "Job", Name: "fire-29404321"}}, "", decide.Owner{Kind: "cronjob", Name: "fire"}},
		{"a Job with a date", []metav1.OwnerReference{{Kind: "Job", Name: "fire-20261130"}}, "", decide.Owner{Kind: "job", Name: "fire-20261130"}},
		{"two, one of which controls", []metav1.OwnerReference{{Kind: "A", Name: "a"}, {Kind: "Job", Name: "fire", Controller: &yes}}, "", decide.Owner{Kind: "job", Name: "fire"}},
		{"two equals", []metav1.OwnerReference{{Kind: "A", Name: "a"}, {Kind: "B", Name: "b"}}, "", decide.Owner{}},
	}
	for _, tt := range tests {
		p := pod(func(p *corev1.Pod) {
			p.OwnerReferences = tt.refs
			if tt.hash != "" {
				p.Labels = map[string]string{"pod-template-hash": tt.hash}
			}
		})
		if diff := cmp.Diff(tt.want, decide.OwnerOf(p)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
