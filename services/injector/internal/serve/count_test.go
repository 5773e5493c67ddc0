package serve_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/services/injector/internal/serve"
)

// series are those of a counter: the labels that are not empty, and the value.
func series(t *testing.T, reg *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetValue() != "" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			out[strings.Join(labels, " ")] = m.GetCounter().GetValue()
		}
	}
	return out
}

func measured(t *testing.T, namespace map[string]string) (*serve.Admitter, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	a := admitter(namespace)
	a.Measure(reg)
	return a, reg
}

const (
	requests  = "proxy_inject_admission_requests_total"
	responses = "proxy_inject_admission_responses_total"
)

func TestCounts(t *testing.T) {
	a, reg := measured(t, map[string]string{"linkerd.io/inject": "enabled"})
	for _, object := range []string{
		plainPod,
		`{"spec":{"hostNetwork":true,"containers":[{"name":"main"},{"name":"istio-proxy"}]}}`,
		// The reason stays although there is a patch (complaint C9).
		`{"spec":{"hostNetwork":true,"containers":[{"name":"main","ports":[{"containerPort":3306}]}]}}`,
		`{"metadata":{"annotations":{"config.linkerd.io/proxy-await":"disabled","config.linkerd.io/proxy-image":"x/y","other/z":"1"}},"spec":{"containers":[{"name":"main"}]}}`,
	} {
		post(t, a, reviewOf("v1", "Pod", "CREATE", object))
	}
	post(t, a, reviewOf("v1", "Service", "CREATE", `{"spec":{"ports":[{"port":3306}]}}`))
	post(t, a, reviewOf("v1", "Service", "CREATE", `{"spec":{"ports":[{"port":80}]}}`)) // not patched, not counted
	want := map[string]float64{
		"annotation_at=namespace namespace=pottery owner_kind=pod skip=false":                                                        1,
		"annotation_at=namespace namespace=pottery owner_kind=pod skip=true skip_reason=host_network_enabled,sidecar_already_exists": 1,
		"annotation_at=namespace namespace=pottery owner_kind=pod skip=true skip_reason=host_network_enabled":                        1,
		"annotation_at=namespace namespace=pottery owner_kind=pod proxy_await=disabled proxy_image=set skip=false":                   1,
		"namespace=pottery owner_kind=service skip=false":                                                                            1,
	}
	if diff := cmp.Diff(want, series(t, reg, responses)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	sum := 0.0
	for v := range maps.Values(series(t, reg, requests)) {
		sum += v
	}
	if sum != 5 {
		t.Errorf("%v requests, want 5", sum)
	}
	a.Forget("pottery")
	if got := series(t, reg, responses); len(got) > 0 {
		t.Errorf("series of a namespace that is gone: %v", slices.Collect(maps.Keys(got)))
	}
}

// Whoever makes pods chooses owners, namespaces and annotations (complaint
// C10); metrics must not grow with them, and no request may be lost from them.
func TestCountsAreBounded(t *testing.T) {
	a, reg := measured(t, nil)
	const pods = 1100
	for i := range pods {
		object := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"kind":"Kind%d","name":"x"}],`+
			`"annotations":{"config.linkerd.io/proxy-image":"x/%d","config.linkerd.io/é.%s":"1","/":"","%d":"\n"}},"spec":{"containers":[{"name":"c"}]}}`,
			i, i, strings.Repeat("x", 253), i)
		post(t, a, strings.ReplaceAll(reviewOf("v1", "Pod", "CREATE", object), "pottery", fmt.Sprint("ns-", i)))
	}
	for _, name := range []string{requests, responses} {
		got := series(t, reg, name)
		sum := 0.0
		for v := range maps.Values(got) {
			sum += v
		}
		if len(got) > 1001 || sum != pods {
			t.Errorf("%s: %d series that count %v, want at most 1001 that count %d", name, len(got), sum, pods)
		}
	}
	for i := range pods {
		a.Forget(fmt.Sprint("ns-", i))
	}
	if got := series(t, reg, requests); len(got) != 1 { // what was counted together
		t.Errorf("%d series are left, want 1", len(got))
	}
}
