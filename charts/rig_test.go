package charts_test

import (
	"flag"
	"regexp"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/charts"
)

var update = flag.Bool("update", false, "write the golden files anew")

// strict refuses fields that Kubernetes does not have.
var strict = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// values reads YAML.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("values of the test: %v\n%s", err, text)
	}
	return v
}

// rendered is a chart's manifests, as helm would install them into linkerd.
func rendered(t *testing.T, chart, over string) []charts.Manifest {
	t.Helper()
	return renderedWith(t, chart, values(t, over), charts.Options{})
}

func renderedWith(t *testing.T, chart string, over map[string]any, o charts.Options) []charts.Manifest {
	t.Helper()
	o.Helm, o.Version = true, "v1.2.3"
	list, err := charts.Render(chart, over, o)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// everything turns on what the charts can have at once.
const everything = `
cniEnabled: false
disableIPv6: false
installNamespace: true
networkPolicy: {enabled: true}
podMonitor: {enabled: true}
bus: {history: {enabled: true}}
destinationController: {autoscaling: {enabled: true}}
policyController: {autoscaling: {enabled: true}}
proxy: {tracing: {enabled: true, collector: {endpoint: "collector.tracing:4317", meshIdentity: {serviceAccountName: collector, namespace: tracing}}}}
`

// rendering is dear: all keys are made anew.
var (
	variantsOnce sync.Once
	variantsAll  map[string][]charts.Manifest
)

// variants are the ways of installing the control plane that rules must hold in.
func variants(t *testing.T) map[string][]charts.Manifest {
	t.Helper()
	variantsOnce.Do(func() { variantsAll = renderVariants(t) })
	return variantsAll
}

func renderVariants(t *testing.T) map[string][]charts.Manifest {
	t.Helper()
	ha, err := charts.HA()
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]charts.Manifest{
		"default":    rendered(t, charts.ControlPlane, ""),
		"ha":         renderedWith(t, charts.ControlPlane, charts.Merge(ha, values(t, everything)), charts.Options{}),
		"cni":        rendered(t, charts.ControlPlane, "cniEnabled: true"),
		"no sidecar": rendered(t, charts.ControlPlane, "proxy: {nativeSidecar: false}"),
		"external": rendered(t, charts.ControlPlane, `
nats: {enabled: false, url: "tls://a.example:4222,tls://b.example:5222"}
bus: {tls: {source: secrets}}`),
		"plugin": renderedWith(t, charts.CNI, values(t, "repairController: {enabled: true}"), charts.Options{}),
	}
}

// decoded are manifests that object has seen; decoding is dear under the race
// detector, and nobody changes what it gives.
var decoded sync.Map

// object is a manifest as Kubernetes' own type; kinds of others are nil.
func object(t *testing.T, m charts.Manifest) runtime.Object {
	t.Helper()
	switch group, _, _ := strings.Cut(m.APIVersion, "/"); group {
	case "apiextensions.k8s.io", "cert-manager.io", "monitoring.coreos.com":
		return nil
	}
	if o, ok := decoded.Load(m.YAML); ok {
		return o.(runtime.Object)
	}
	o, _, err := strict.Decode([]byte(m.YAML), nil, nil)
	if err != nil {
		t.Fatalf("%s: %s %s: %v\n%s", m.File, m.Kind, m.Name, err, m.YAML)
	}
	decoded.Store(m.YAML, o)
	return o
}

// find is the one object of a kind and name.
func find[T runtime.Object](t *testing.T, list []charts.Manifest, kind, name string) T {
	t.Helper()
	for _, m := range list {
		if m.Kind == kind && m.Name == name {
			o, ok := object(t, m).(T)
			if !ok {
				t.Fatalf("%s %s is a %T", kind, name, object(t, m))
			}
			return o
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	panic("not reached")
}

// workload is a pod template with the name of what makes its pods.
type workload struct {
	kind, name string
	selector   *metav1.LabelSelector
	pod        *corev1.PodTemplateSpec
}

func workloads(t *testing.T, list []charts.Manifest) []workload {
	t.Helper()
	var out []workload
	for _, m := range list {
		switch o := object(t, m).(type) {
		case *appsv1.Deployment:
			out = append(out, workload{m.Kind, m.Name, o.Spec.Selector, &o.Spec.Template})
		case *appsv1.StatefulSet:
			out = append(out, workload{m.Kind, m.Name, o.Spec.Selector, &o.Spec.Template})
		case *appsv1.DaemonSet:
			out = append(out, workload{m.Kind, m.Name, o.Spec.Selector, &o.Spec.Template})
		}
	}
	if len(out) == 0 {
		t.Fatal("there is no workload")
	}
	return out
}

// containers are all of a pod, each with the place where it is.
func (w workload) containers() map[string]*corev1.Container {
	out := map[string]*corev1.Container{}
	for i := range w.pod.Spec.InitContainers {
		c := &w.pod.Spec.InitContainers[i]
		out[w.name+" "+c.Name] = c
	}
	for i := range w.pod.Spec.Containers {
		c := &w.pod.Spec.Containers[i]
		out[w.name+" "+c.Name] = c
	}
	return out
}

// blanks are what is different in each rendering: what was made by chance.
var blanks = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?s)-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----`), "(certificate)"},
	{regexp.MustCompile(`(?m)^( *(?:caBundle|[a-z]+\.(?:crt|key|pem)): )[A-Za-z0-9+/=]{40,}$`), "${1}(made)"},
	{regexp.MustCompile(`(trust-root-sha256|checksum/certificate): "?[0-9a-f]{64}"?`), "$1: (digest)"},
	{regexp.MustCompile(`(charts\.weftmesh\.io/renew-after): "?[0-9]+"?`), "$1: (half a year from now)"},
}

// plain is an object in one form, without what was made by chance.
func plain(t *testing.T, text string) string {
	t.Helper()
	for _, b := range blanks {
		text = b.what.ReplaceAllString(text, b.with)
	}
	j, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	y, err := yaml.JSONToYAML(j)
	if err != nil {
		t.Fatal(err)
	}
	return string(y)
}
