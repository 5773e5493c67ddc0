package patch_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftmesh/weft/services/injector/internal/patch"
	"github.com/weftmesh/weft/services/injector/internal/values"
)

// Ports of native sidecars and init containers count like any other, by number
// and by name (complaint C12); startup probes and named probes don't.
func TestPortsOfEveryContainer(t *testing.T) {
	probe := func(port intstr.IntOrString) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: port}}}
	}
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "cache", RestartPolicy: &always, Ports: []corev1.ContainerPort{{Name: "mc", ContainerPort: 11211}}}},
		Containers: []corev1.Container{{
			Name: "main", Ports: []corev1.ContainerPort{{ContainerPort: 8400}, {ContainerPort: 53, Protocol: corev1.ProtocolUDP}},
			LivenessProbe: probe(intstr.FromInt32(443)), ReadinessProbe: probe(intstr.FromString("mc")), StartupProbe: probe(intstr.FromInt32(9999)),
		}},
	}}
	pod.Annotations = map[string]string{"config.linkerd.io/opaque-ports": "mc, 7-9,unknown,8400"}
	ops, _, err := patch.Pod(patch.Input{Pod: pod, Values: values.Default("v1"), Anchors: "x", ControllerNamespace: "linkerd"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, op := range ops {
		if c, ok := op.Value.(corev1.Container); ok {
			for _, e := range c.Env {
				got[e.Name] = e.Value
			}
		}
	}
	for name, want := range map[string]string{
		"LINKERD2_PROXY_INBOUND_PORTS":                            "11211,443,53,8400",
		"LINKERD2_PROXY_INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION": "11211,7-9,8400",
	} {
		if diff := cmp.Diff(want, got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
