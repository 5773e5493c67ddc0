package patch_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/services/injector/internal/decide"
	"github.com/weftmesh/weft/services/injector/internal/patch"
	"github.com/weftmesh/weft/services/injector/internal/values"
)

// The operations come in Linkerd's order: whoever reads patches in an audit log
// finds things where they were.
func TestOrder(t *testing.T) {
	v := values.Default("v1")
	v.Proxy.Tracing.Enabled = true
	in := patch.Input{
		Pod:       &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Ports: []corev1.ContainerPort{{ContainerPort: 25}}}}}},
		Namespace: "pottery", NamespaceAnnotations: map[string]string{"config.linkerd.io/enable-debug-sidecar": "true", "linkerd.io/inject": "enabled"},
		Owner: decide.Owner{Kind: "deployment", Name: "kiln"}, Values: v, Anchors: "x", ControllerNamespace: "linkerd",
	}
	ops, _, err := patch.Pod(in)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, op := range ops {
		name := ""
		switch v := op.Value.(type) {
		case corev1.Container:
			name = " " + v.Name
		case corev1.Volume:
			name = " " + v.Name
		}
		got = append(got, op.Op+" "+op.Path+name)
	}
	want := strings.Split(strings.TrimSpace(`
add /metadata/annotations
add /metadata/annotations/config.linkerd.io~1enable-debug-sidecar
add /metadata/annotations/config.linkerd.io~1opaque-ports
add /metadata/annotations/linkerd.io~1created-by
add /metadata/annotations/linkerd.io~1inject
add /metadata/annotations/linkerd.io~1proxy-version
add /metadata/annotations/linkerd.io~1trust-root-sha256
add /metadata/labels
add /metadata/labels/linkerd.io~1control-plane-ns
add /metadata/labels/linkerd.io~1proxy-deployment
add /metadata/labels/linkerd.io~1workload-ns
add /spec/volumes
add /spec/initContainers
add /spec/volumes/- linkerd-proxy-init-xtables-lock
add /spec/initContainers/0 linkerd-init
add /spec/containers/- linkerd-debug
add /spec/volumes/- linkerd-identity-end-entity
add /spec/volumes/- linkerd-podinfo
add /spec/volumes/- linkerd-identity-token
add /spec/initContainers/1 linkerd-proxy`), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOwnerLabels(t *testing.T) {
	for owner, want := range map[decide.Owner]string{
		{Kind: "deployment", Name: "kiln"}:                      "linkerd.io/proxy-deployment",
		{Kind: "replicationcontroller", Name: "kiln"}:           "linkerd.io/proxy-replicationcontroller",
		{Kind: "cronjob", Name: "kiln"}:                         "", // only the command line writes it
		{Kind: "rollout", Name: "kiln"}:                         "",
		{Kind: "statefulset", Name: strings.Repeat("kiln", 20)}: "", // no label can hold it
		{}: "",
	} {
		ops, _, err := patch.Pod(patch.Input{
			Pod: &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}, Owner: owner,
			Values: values.Default("v1"), Anchors: "x", ControllerNamespace: "linkerd",
		})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, op := range ops {
			if name, ok := strings.CutPrefix(op.Path, "/metadata/labels/linkerd.io~1proxy-"); ok {
				got = "linkerd.io/proxy-" + name
			}
		}
		if got != want {
			t.Errorf("%v: label %q, want %q", owner, got, want)
		}
	}
}
