package manifest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/services/injector/inject"
)

// Every kind that has a pod template, and where it has it.
var workloads = map[string]struct{ apiVersion, indent, path string }{
	"Pod":                   {"v1", "", ""},
	"Deployment":            {"apps/v1", "    ", "spec:\n  template:\n"},
	"ReplicaSet":            {"apps/v1", "    ", "spec:\n  template:\n"},
	"StatefulSet":           {"apps/v1", "    ", "spec:\n  template:\n"},
	"DaemonSet":             {"apps/v1", "    ", "spec:\n  template:\n"},
	"ReplicationController": {"v1", "    ", "spec:\n  template:\n"},
	"Job":                   {"batch/v1", "    ", "spec:\n  template:\n"},
	"CronJob":               {"batch/v1", "        ", "spec:\n  jobTemplate:\n    spec:\n      template:\n"},
}

const podTemplate = `spec:
  initContainers:
  - name: setup
    image: setup:1
  containers:
  - name: app
    image: app:1
    ports:
    - containerPort: 8080
      name: http
    env:
    - name: A
      value: "1"
    livenessProbe:
      httpGet: {path: /live, port: http}
    volumeMounts:
    - {name: data, mountPath: /data}
  volumes:
  - {name: data, emptyDir: {}}
`

func workload(kind string) string {
	w := workloads[kind]
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata:\n  name: web\n  namespace: shop\n  labels: {app: web}\n%s", w.apiVersion, kind, w.path)
	meta := "metadata:\n  labels: {app: web}\n  annotations: {who: me}\n"
	if kind == "Pod" {
		meta = ""
	}
	for line := range strings.Lines(meta + podTemplate) {
		text += w.indent + line
	}
	return text
}

// TestRoundTrip: taking out what was put in gives back what was there, for
// every kind of workload, annotated and injected, with native sidecars and without.
func TestRoundTrip(t *testing.T) {
	anchors, err := os.ReadFile(filepath.Join("testdata", "anchors.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for kind := range workloads {
		for _, way := range []string{"annotate", "manual", "manual native"} {
			t.Run(kind+" "+way, func(t *testing.T) {
				docs, err := Parse("test", []byte(workload(kind)))
				if err != nil {
					t.Fatal(err)
				}
				values := inject.DefaultValues("v1")
				values.Proxy.NativeSidecar = way == "manual native"
				mesh := inject.Mesh{Values: values, Anchors: string(anchors)}
				format := YAML
				o := injectOptions{manual: way != "annotate", flags: &Flags{}, format: &format}
				var out, report bytes.Buffer
				if err := o.run(&out, &report, docs, mesh, false); err != nil {
					t.Fatal(err)
				}
				if strings.Contains(out.String(), "linkerd-proxy") != o.manual || !strings.Contains(report.String(), "injected\n") {
					t.Errorf("out:\n%s\nreport:\n%s", out.String(), report.String())
				}
				// Once more must be the same: an injected manifest is taken apart first.
				again, err := Parse("again", out.Bytes())
				if err != nil {
					t.Fatal(err)
				}
				var twice bytes.Buffer
				if err := o.run(&twice, &report, again, mesh, false); err != nil || twice.String() != out.String() {
					t.Errorf("injected twice: %v\n%s", err, cmp.Diff(out.String(), twice.String()))
				}
				back, errOut, err := run(t, out.String(), "uninject", "-")
				if err != nil || !strings.Contains(errOut, fmt.Sprintf("%s \"web\" uninjected", strings.ToLower(kind))) {
					t.Errorf("uninject: %v\n%s", err, errOut)
				}
				got, err := Parse("back", []byte(back))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(docs[0].Object, got[0].Object); diff != "" {
					t.Errorf("uninject(inject(x)) (-x +got):\n%s", diff)
				}
			})
		}
	}
}
