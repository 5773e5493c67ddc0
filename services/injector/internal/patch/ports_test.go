package patch_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftmesh/weft/services/injector/internal/patch"
	"github.com/weftmesh/weft/services/injector/internal/patch/patchtest"
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

// The validator must not connect to a port that the pod's annotations exclude
// from the redirection that it is to prove.
func TestValidatorAndSkippedPorts(t *testing.T) {
	for _, tt := range []struct{ skip, want string }{
		{"", "1.1.1.1:20001"},
		{"1-20000, 20002-65535", "1.1.1.1:20001"},
		{"20001", "1.1.1.1:20002"},
		{"80,20000-30000,30001,x,7-5,99999", "1.1.1.1:30002"},
		{"2-65535", "1.1.1.1:1"},
		{"0-65535", ""},
		{"1-30000,25000-65535", ""},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
		pod.Annotations = map[string]string{"config.linkerd.io/skip-outbound-ports": tt.skip}
		v := values.Default("v1")
		v.CNIEnabled = true
		ops, _, err := patch.Pod(patch.Input{Pod: pod, Values: v, Anchors: "x", ControllerNamespace: "linkerd"})
		if err != nil {
			t.Fatal(err)
		}
		raw, errRaw := json.Marshal(pod)
		wire, errWire := json.Marshal(ops)
		applied, errApply := patchtest.Apply(raw, wire)
		var after corev1.Pod
		if err := errors.Join(errRaw, errWire, errApply, json.Unmarshal(applied, &after)); err != nil {
			t.Fatalf("skip-outbound-ports %q: %v", tt.skip, err)
		}
		got := ""
		for _, c := range after.Spec.InitContainers {
			if c.Name == "linkerd-network-validator" {
				got = c.Args[slices.Index(c.Args, "--connect-addr")+1]
			}
		}
		if got != tt.want {
			t.Errorf("skip-outbound-ports %q: the validator connects to %q, want %q", tt.skip, got, tt.want)
		}
	}
}

func TestWarnsOfTheProxysUser(t *testing.T) {
	as := func(user int64) *corev1.SecurityContext { return &corev1.SecurityContext{RunAsUser: &user} }
	same := int64(2102)
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsUser: &same},
		InitContainers:  []corev1.Container{{Name: "first", SecurityContext: as(1)}},
		Containers:      []corev1.Container{{Name: "inherits"}, {Name: "says", SecurityContext: as(2102)}, {Name: "other", SecurityContext: as(2103)}},
	}}
	for annotation, want := range map[string]int{"": 2, "2103": 1, "5000": 0} {
		pod.Annotations = map[string]string{}
		if annotation != "" {
			pod.Annotations["config.linkerd.io/proxy-uid"] = annotation
		}
		_, warnings, err := patch.Pod(patch.Input{Pod: pod, Values: values.Default("v1"), Anchors: "x", ControllerNamespace: "linkerd"})
		if err != nil || len(warnings) != want {
			t.Errorf("proxy-uid %q: %d warnings %q, %v; want %d", annotation, len(warnings), warnings, err, want)
		}
	}
}
