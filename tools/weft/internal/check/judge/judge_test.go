package judge

import (
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftmesh/weft/services/kit/say"
)

func meshed(name string, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{}
	p.Namespace, p.Name, p.Labels = "shop", name, map[string]string{"app": "web"}
	p.Spec.Containers = []corev1.Container{
		{Name: "web", Ports: []corev1.ContainerPort{{Name: "db", ContainerPort: 5000}}}, {Name: Proxy, Image: "r:5000/proxy:v1"},
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", Ready: true}, {Name: Proxy, Ready: true}}
	for _, c := range change {
		c(&p)
	}
	return p
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{key: value} }
}

func service(opaque string, port corev1.ServicePort) corev1.Service {
	s := corev1.Service{}
	s.Namespace, s.Name = "shop", "web"
	s.Spec.Selector = map[string]string{"app": "web"}
	s.Spec.Ports = []corev1.ServicePort{port}
	if opaque != "" {
		s.Annotations = map[string]string{OpaqueKey: opaque}
	}
	return s
}

func TestOpaque(t *testing.T) {
	plain := corev1.ServicePort{Name: "tcp", Port: 80, TargetPort: intstr.FromInt32(5000)}
	for _, tt := range []struct {
		name    string
		service corev1.Service
		pod     corev1.Pod
		want    string
	}{
		{"nobody says anything", service("", plain), meshed("a"), ""},
		{"both say it", service("80", plain), meshed("a", annotated(OpaqueKey, "5000")), ""},
		{"both say it by name", service("tcp", plain), meshed("a", annotated(OpaqueKey, "db")), ""},
		{"in a range", service("70-90", plain), meshed("a", annotated(OpaqueKey, "1,4990-5010")), ""},
		{"only the Service", service("80", plain), meshed("a"), "pod shop/a: annotation config.linkerd.io/opaque-ports lacks port 5000, which Service web has opaque as its port 80"},
		{"only the pod", service("", plain), meshed("a", annotated(OpaqueKey, "5000")), "Service shop/web: annotation config.linkerd.io/opaque-ports lacks port 80"},
		{
			"the pod's default has it", service("3306", corev1.ServicePort{Port: 3306}), meshed("a"), "",
		},
		{
			"a target by name", service("80", corev1.ServicePort{Port: 80, TargetPort: intstr.FromString("db")}), meshed("a"), "lacks port 5000",
		},
		{
			"a name that the pod lacks", service("80", corev1.ServicePort{Port: 80, TargetPort: intstr.FromString("x")}), meshed("a"), "",
		},
		{"another's pod", service("80", plain), meshed("a", func(p *corev1.Pod) { p.Labels = nil }), ""},
		{"a pod that ended", service("80", plain), meshed("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), ""},
		{"nonsense", service("x,-,9-1,99999,", plain), meshed("a", annotated(OpaqueKey, "70000-80000,a-b")), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wrong(t, "Opaque()", Opaque([]corev1.Service{tt.service}, []corev1.Pod{tt.pod}), tt.want)
		})
	}
}

func FuzzPorts(f *testing.F) {
	f.Add("1-5,db,,70000,-3")
	f.Fuzz(func(t *testing.T, text string) {
		for p := range ports(text, func(string) (int32, bool) { return 0, false }) {
			if p < 1 || p > 65535 {
				t.Errorf("ports(%q) has %d", text, p)
			}
		}
	})
}

func TestTrustRoots(t *testing.T) {
	root := make1(t, ec(t, elliptic.P256()), x509.ECDSAWithSHA256, nil, nil)
	other := make1(t, ec(t, elliptic.P256()), x509.ECDSAWithSHA256, nil, nil)
	text := func(c *x509.Certificate) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
	}
	given := func(value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS", Value: value}}
		}
	}
	const key = "linkerd.io/trust-root-sha256"
	for name, tt := range map[string]struct {
		pod  corev1.Pod
		want string
	}{
		"the same":                  {meshed("a", given("\n"+text(root)+text(root))), ""},
		"another":                   {meshed("a", given(text(other))), "env LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS"},
		"garbage":                   {meshed("a", given("x")), "env LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS"},
		"the sum":                   {meshed("a", annotated(key, Fingerprint(text(root)))), ""},
		"another sum":               {meshed("a", annotated(key, "ff")), "annotation " + key},
		"nothing to compare":        {meshed("a"), ""},
		"no proxy, no matter of us": {meshed("a", func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }), ""},
		"from a ConfigMap: the sum?": {meshed("a", func(p *corev1.Pod) {
			p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS", ValueFrom: &corev1.EnvVarSource{}}}
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			wrong(t, "TrustRoots()", TrustRoots([]corev1.Pod{tt.pod}, text(root), one(root)), tt.want)
		})
	}
}

func TestProxyVersion(t *testing.T) {
	for image, want := range map[string]string{
		"proxy": "", "proxy:v2": "v2", "host:5000/proxy": "", "host:5000/proxy:v2": "v2", "proxy:v2@sha256:aa": "v2", "proxy@sha256:aa": "",
	} {
		p := meshed("a", func(p *corev1.Pod) { p.Spec.Containers[1].Image = image })
		if got := proxyVersion(&p); got != want {
			t.Errorf("proxyVersion(%s) = %q, want %q", image, got, want)
		}
	}
	p := meshed("a", annotated("linkerd.io/proxy-version", "v9"))
	if got := proxyVersion(&p); got != "v9" {
		t.Errorf("proxyVersion() = %q, want the annotation", got)
	}
}

func TestContained(t *testing.T) {
	for _, tt := range []struct{ networks, address, want string }{
		{"10.0.0.0/8", "10.1.2.3", ""},
		{"10.0.0.0/8", "10.1.0.0/16", ""},
		{"10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8 is not contained"},
		{"10.0.0.0/8, fd00::/8", "fd00::1", ""},
		{"10.0.0.0/8", "::ffff:10.1.2.3", ""},
		{"10.0.0.0/8", "fd00::1", "not contained"},
		{"", "10.0.0.1", "not contained"},
		{"10.0.0.0/8", "ten", `"ten" is no address`},
	} {
		nets, err := Networks(tt.networks)
		if err != nil {
			t.Fatal(err)
		}
		wrong(t, fmt.Sprintf("%+v", tt), Contained(nets, []Address{{"pod a/b", "status.podIPs", tt.address}}), tt.want)
	}
	if _, err := Networks("10.0.0.0/8,x"); err == nil {
		t.Error("Networks() takes what is none")
	}
}

func FuzzNetworks(f *testing.F) {
	f.Add("10.0.0.0/8,fd00::/8", "10.0.0.1")
	f.Fuzz(func(_ *testing.T, networks, address string) {
		if nets, err := Networks(networks); err == nil {
			_ = Contained(nets, []Address{{Text: address}})
		}
	})
}

func TestManyFaultsAreBounded(t *testing.T) {
	var pods []corev1.Pod
	for i := range 25 {
		pods = append(pods, meshed(fmt.Sprintf("p%02d", i), func(p *corev1.Pod) { p.Status.ContainerStatuses[1].Ready = false }))
	}
	err := ProxiesReady(pods, "namespace shop")
	p, ok := errors.AsType[*say.Problem](err)
	if !ok || strings.Count(p.What, "\n") != mostFaults || !strings.HasSuffix(p.What, "\nand 15 more") {
		t.Errorf("ProxiesReady() = %v, want ten pods and a count", err)
	}
}

func TestPodStates(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"an init container waits": {func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodPending
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "linkerd-init", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}
		}, "status.phase is Pending: container linkerd-init waits, ErrImagePull"},
		"it died": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses[1] = corev1.ContainerStatus{Name: Proxy, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}}}
		}, "terminated, OOMKilled, exit code 137"},
		"not reported yet":  {func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }, "does not list linkerd-proxy"},
		"another container": {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Ready = false }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			wrong(t, "ProxiesReady()", ProxiesReady([]corev1.Pod{meshed("a", tt.change)}, "x"), tt.want)
		})
	}
}

func TestReplicasReadySaysWhy(t *testing.T) {
	d := appsv1.Deployment{}
	d.Namespace, d.Name = "linkerd", "linkerd-identity"
	d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "quota exceeded"}}
	wrong(t, "ReplicasReady()", ReplicasReady([]appsv1.Deployment{d}, "linkerd", nil), "status.readyReplicas is 0, spec.replicas is 1: quota exceeded")
}

func TestKubernetesVersion(t *testing.T) {
	for git, want := range map[string]string{
		"v1.31.0": "", "v1.37.2": "", "v2.0.0": "", "v1.31.4-eks-1": "", "v1.31+": "", "v1.30.99": "at least 1.31.0", "": "cannot be read", "new": "cannot be read",
	} {
		wrong(t, git, KubernetesVersion(git), want)
	}
}

func TestLeads(t *testing.T) {
	a, b, dead := Process{Pod: "l/a", Leader: true}, Process{Pod: "l/b", Leader: true}, Process{Pod: "l/c", Err: errors.New("gone")}
	wrong(t, "one and one that is dead", Leads([]Process{a, dead}, "l"), "")
	wrong(t, "two", Leads([]Process{a, b}, "l"), "several pods: l/a, l/b")
	wrong(t, "none", Leads(nil, "l"), "none of its 0 pods")
}

func TestInStep(t *testing.T) {
	leader := Process{Epoch: 2, Seq: 5}
	for name, tt := range map[string]struct {
		p    Process
		want string
	}{
		"equal":        {Process{Connected: true, Synced: true, Epoch: 2, Seq: 5}, ""},
		"ahead":        {Process{Connected: true, Synced: true, Epoch: 2, Seq: 9}, ""},
		"a new epoch":  {Process{Connected: true, Synced: true, Epoch: 3, Seq: 1}, ""},
		"an old epoch": {Process{Connected: true, Synced: true, Epoch: 1, Seq: 9}, "weft_bus_seq is 9 in epoch 1"},
		"cut off":      {Process{Synced: true}, "weft_bus_connected is 0"},
		"not complete": {Process{Connected: true}, "weft_bus_synced is 0"},
	} {
		t.Run(name, func(t *testing.T) { wrong(t, "InStep()", InStep(leader, []Process{tt.p}, "l"), tt.want) })
	}
}

func TestQuorum(t *testing.T) {
	full := []Server{{Pod: "l/0", ID: "A", Peers: []string{"B", "B", "C"}}, {Pod: "l/1", ID: "B", Peers: []string{"A", "C"}}, {Pod: "l/2", ID: "C", Peers: []string{"A", "B"}}}
	wrong(t, "all hear all", Quorum(full, 3, "l"), "")
	wrong(t, "a single server", Quorum([]Server{{Pod: "l/0", ID: "A"}}, 1, "l"), "")
	wrong(t, "half", Quorum([]Server{{Pod: "l/0", ID: "A"}}, 2, "l"), "only 1 answer and 2 are needed")
	wrong(t, "none", Quorum(nil, 3, "l"), "only 0 answer")
}
