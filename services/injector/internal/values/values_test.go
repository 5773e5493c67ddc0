package values_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/services/injector/internal/values"
)

// A values file of an older release, or one with whole sections missing or
// null, gives the defaults for what it lacks (complaint C8).
func TestParseKeepsDefaults(t *testing.T) {
	for _, in := range []string{"", "proxy: {}\n", "proxy: {image: {name: ''}, tracing: null, additionalEnv: null}\ndebugContainer: {image: {name: ''}}\n", "null", "proxy:\nproxyInit:\nidentity: {}\nunknownSection: {a: [1]}\n"} {
		got, err := values.Parse([]byte(in), "v1")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(values.Default("v1"), got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", in, diff)
		}
	}
}

// People leave out quotes.
func TestParseTakesNumbersForText(t *testing.T) {
	got, err := values.Parse([]byte("proxy: {opaquePorts: 3306, resources: {cpu: {limit: 1, request: 0.5}}, image: {version: 7}}\n"+
		"proxyInit: {ignoreInboundPorts: 25}\n"), "v1")
	if err != nil {
		t.Fatal(err)
	}
	is := []string{got.Proxy.OpaquePorts, got.Proxy.Resources.CPU.Limit, got.Proxy.Resources.CPU.Request, got.Proxy.Image.Version, got.ProxyInit.IgnoreInboundPorts}
	if diff := cmp.Diff([]string{"3306", "1", "0.5", "7", "25"}, is); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	tests := map[string]string{
		"a: [":                                          "parsing values",
		"clusterNetworks: 10.0.0.0/8,moon":              "moon",
		"proxyInit: {iptablesMode: magic}":              "iptablesMode",
		"proxy: {resources: {cpu: {limit: lots}}}":      "lots",
		"proxy: {resources: {memory: {request: '-1'}}}": "-1",
	}
	for in, want := range tests {
		if _, err := values.Parse([]byte(in), "v1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want an error with %q", in, err, want)
		}
	}
}

// One pod's overrides never reach the next pod (complaint C6).
func TestEffectiveLeavesTheBaseAlone(t *testing.T) {
	base, want := values.Default("v1"), values.Default("v1")
	base.Proxy.Tracing.Enabled, want.Proxy.Tracing.Enabled = true, true
	base.Proxy.AdditionalEnv = make([]corev1.EnvVar, 1, 8)
	want.Proxy.AdditionalEnv = make([]corev1.EnvVar, 1)
	base.Proxy.Tracing.Labels = map[string]string{"a": "b"}
	want.Proxy.Tracing.Labels = map[string]string{"a": "b"}
	own := map[string]string{
		"linkerd.io/inject":                      "ingress",
		"config.linkerd.io/proxy-uid":            "7",
		"config.linkerd.io/opaque-ports":         "1",
		"config.linkerd.io/proxy-additional-env": `[{"name":"","value":"x"},{"name":"B"}]`,
		"resource.opentelemetry.io/a":            "c",
	}
	got, warnings := base.Effective(values.Annotations{Pod: own, Own: own}, &corev1.Pod{})
	if len(warnings) > 0 || got.Proxy.UID != 7 || got.Proxy.Tracing.Labels["a"] != "c" || len(got.Proxy.AdditionalEnv) != 2 {
		t.Errorf("Effective() = %+v, %v", got.Proxy, warnings)
	}
	if diff := cmp.Diff(want, base); diff != "" {
		t.Errorf("base changed (-want +got):\n%s", diff)
	}
}

func TestEffectiveNativeSidecar(t *testing.T) {
	const stable, beta, alpha = "config.linkerd.io/proxy-enable-native-sidecar", "config.beta.linkerd.io/proxy-enable-native-sidecar", "config.alpha.linkerd.io/proxy-enable-native-sidecar"
	tests := []struct {
		in   map[string]string
		want bool
	}{
		{nil, true},
		{map[string]string{alpha: "false"}, false},
		{map[string]string{alpha: "false", beta: "true"}, true},
		{map[string]string{beta: "false", stable: "true"}, true},
		{map[string]string{beta: "false", stable: "perhaps"}, true}, // nonsense ends the search
	}
	for _, tt := range tests {
		got, _ := values.Default("v1").Effective(values.Annotations{Pod: tt.in, Own: tt.in}, &corev1.Pod{})
		if got.Proxy.NativeSidecar != tt.want {
			t.Errorf("%v: NativeSidecar = %v, want %v", tt.in, got.Proxy.NativeSidecar, tt.want)
		}
	}
}

func TestEffectiveEnvironmentLayers(t *testing.T) {
	const key = "config.linkerd.io/proxy-additional-env"
	base := values.Default("v1")
	base.Proxy.AdditionalEnv = []corev1.EnvVar{{Name: "A", Value: "values"}, {Name: "B", Value: "values"}}
	tests := []struct {
		name           string
		namespace, own string
		want           string
		warnings       int
	}{
		{"values alone", "", "", "A=values B=values", 0},
		{"namespace over values", `[{"name":"B","value":"ns"},{"name":"C","value":"ns"}]`, "", "A=values B=ns C=ns", 0},
		{"pod over namespace", `[{"name":"B","value":"ns"}]`, `[{"name":"B","value":"pod"}]`, "A=values B=pod", 0},
		{"a bad layer", `not json`, `[{"name":"D","value":"pod"}]`, "A=values B=values D=pod", 1},
	}
	for _, tt := range tests {
		layer := func(s string) map[string]string {
			if s == "" {
				return nil
			}
			return map[string]string{key: s}
		}
		got, warnings := base.Effective(values.Annotations{Namespace: layer(tt.namespace), Own: layer(tt.own)}, &corev1.Pod{})
		var parts []string
		for _, e := range got.Proxy.AdditionalEnv {
			parts = append(parts, e.Name+"="+e.Value)
		}
		if s := strings.Join(parts, " "); s != tt.want || len(warnings) != tt.warnings {
			t.Errorf("%s: %s with %d warnings, want %s with %d", tt.name, s, len(warnings), tt.want, tt.warnings)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("proxy: {cores: 1}"))
	f.Add([]byte("proxy: {inbound: {server: {http2: {a: [1]}}}}"))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := values.Parse(b, "v1"); err == nil && v.Proxy.Image.Name == "" {
			t.Error("values without an image")
		}
	})
}
