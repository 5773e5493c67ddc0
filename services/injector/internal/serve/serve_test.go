package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/weftmesh/weft/services/injector/internal/feed"
	"github.com/weftmesh/weft/services/injector/internal/patch/patchtest"
	"github.com/weftmesh/weft/services/injector/internal/serve"
	"github.com/weftmesh/weft/services/injector/internal/settings"
	"github.com/weftmesh/weft/services/injector/internal/values"
)

type fixed struct {
	given *settings.Settings
	err   error
}

func (f fixed) Get() (*settings.Settings, error) { return f.given, f.err }

type names map[string]string

func (n names) Annotations(context.Context, string) (map[string]string, error) { return n, nil }

func admitter(annotations map[string]string) *serve.Admitter {
	return &serve.Admitter{
		Settings:            fixed{given: &settings.Settings{Values: values.Default("v1"), Anchors: "PEM"}},
		Namespaces:          names(annotations),
		ControllerNamespace: "linkerd",
	}
}

const plainPod = `{"metadata":{"name":"kiln-0"},"spec":{"containers":[{"name":"main"}]}}`

func reviewOf(version, kind, operation, object string) string {
	return fmt.Sprintf(`{"apiVersion":"admission.k8s.io/%s","kind":"AdmissionReview","request":{"uid":"u-7",`+
		`"operation":%q,"namespace":"pottery","kind":{"group":"","version":"v1","kind":%q},"object":%s}}`,
		version, operation, kind, object)
}

func post(t *testing.T, a *serve.Admitter, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	serve.Handler(a).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/any/path", strings.NewReader(body)))
	return w
}

func decode(t *testing.T, w *httptest.ResponseRecorder) admissionv1.AdmissionReview {
	t.Helper()
	var out admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || out.Response == nil {
		t.Fatalf("answer %d %q: %v", w.Code, w.Body, err)
	}
	return out
}

func TestWire(t *testing.T) {
	tests := []struct {
		name, in string
		want     int
	}{
		{"empty body", "", 200},
		{"not JSON", "hello", 400},
		{"another kind", `{"apiVersion":"v1","kind":"Pod"}`, 400},
		{"another version", `{"apiVersion":"admission.k8s.io/v2","kind":"AdmissionReview","request":{"uid":"u"}}`, 400},
		{"no request", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, 400},
		{"no uid", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}`, 400},
		{"too large", `{"x":"` + strings.Repeat("x", 10<<20) + `"}`, 500},
		{"a review", reviewOf("v1", "Pod", "CREATE", plainPod), 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if w := post(t, admitter(nil), tt.in); w.Code != tt.want {
				t.Errorf("status %d, want %d (%s)", w.Code, tt.want, w.Body)
			}
		})
	}
	if w := post(t, admitter(nil), ""); w.Body.Len() > 0 {
		t.Errorf("body of the answer to nothing: %q", w.Body)
	}
}

func TestVersionIsEchoed(t *testing.T) {
	enabled := map[string]string{"linkerd.io/inject": "enabled"}
	for _, version := range []string{"v1", "v1beta1"} {
		out := decode(t, post(t, admitter(enabled), reviewOf(version, "Pod", "CREATE", plainPod)))
		if out.APIVersion != "admission.k8s.io/"+version || out.Kind != "AdmissionReview" || out.Response.UID != "u-7" {
			t.Errorf("answer %+v", out)
		}
		if !out.Response.Allowed || out.Response.PatchType == nil || *out.Response.PatchType != admissionv1.PatchTypeJSONPatch {
			t.Errorf("response %+v", out.Response)
		}
		if _, err := patchtest.Apply([]byte(plainPod), out.Response.Patch); err != nil {
			t.Error(err)
		}
	}
}

func TestAdmit(t *testing.T) {
	enabled := map[string]string{"linkerd.io/inject": "enabled"}
	tests := []struct {
		name       string
		namespace  map[string]string
		kind, op   string
		object     string
		annotation string // of opaque ports, in the result
		proxy      bool
	}{
		{"injected", enabled, "Pod", "CREATE", plainPod, "", true},
		{"not asked for", nil, "Pod", "CREATE", plainPod, "", false},
		{"an update", enabled, "Pod", "UPDATE", plainPod, "", false},
		{"another kind", enabled, "ConfigMap", "CREATE", `{"data":{}}`, "", false},
		{"our own pod", enabled, "Pod", "CREATE", `{"metadata":{"labels":{"linkerd.io/control-plane-component":"x"}},"spec":{"containers":[{"name":"main"}]}}`, "", false},
		{"skipped pod with a default opaque port", nil, "Pod", "CREATE", `{"metadata":{},"spec":{"containers":[{"name":"main","ports":[{"containerPort":3306}]}]}}`, "3306", false},
		{"skipped pod in a namespace with opaque ports", map[string]string{"config.linkerd.io/opaque-ports": "7"}, "Pod", "CREATE", plainPod, "7", false},
		{"service", nil, "Service", "CREATE", `{"metadata":{"name":"kiln"},"spec":{"ports":[{"port":3306}]}}`, "3306", false},
		{"service without any", nil, "Service", "CREATE", `{"metadata":{"name":"kiln"},"spec":{"ports":[{"port":80}]}}`, "", false},
		{"our own service", nil, "Service", "CREATE", `{"metadata":{"labels":{"linkerd.io/control-plane-component":"x"}},"spec":{"ports":[{"port":3306}]}}`, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp := decode(t, post(t, admitter(tt.namespace), reviewOf("v1", tt.kind, tt.op, tt.object))).Response
			if !resp.Allowed {
				t.Fatalf("rejected: %v", resp.Result)
			}
			after := []byte(tt.object)
			if resp.Patch != nil {
				var err error
				if after, err = patchtest.Apply(after, resp.Patch); err != nil {
					t.Fatal(err)
				}
			}
			var got struct {
				Metadata struct{ Annotations map[string]string }
			}
			if err := json.Unmarshal(after, &got); err != nil {
				t.Fatal(err)
			}
			if a := got.Metadata.Annotations["config.linkerd.io/opaque-ports"]; a != tt.annotation {
				t.Errorf("opaque ports %q, want %q", a, tt.annotation)
			}
			if proxy := bytes.Contains(after, []byte(`"linkerd-proxy"`)); proxy != tt.proxy {
				t.Errorf("has a proxy: %v, want %v", proxy, tt.proxy)
			}
		})
	}
}

type unknown struct{}

func (unknown) Annotations(context.Context, string) (map[string]string, error) {
	return nil, fmt.Errorf("looking: %w", feed.ErrUnknown)
}

// Without its namespace nobody knows whether a pod is to have a proxy; only pods
// that could not have one anyway, and those that the bus itself needs, get by.
func TestUnknownNamespace(t *testing.T) {
	a := admitter(nil)
	a.Namespaces = unknown{}
	for object, want := range map[string]bool{
		plainPod: false,
		`{"metadata":{"annotations":{"linkerd.io/inject":"enabled"}},"spec":{"containers":[{"name":"main"}]}}`:  false,
		`{"metadata":{"annotations":{"linkerd.io/inject":"disabled"}},"spec":{"containers":[{"name":"main"}]}}`: true,
		`{"spec":{"hostNetwork":true,"containers":[{"name":"main"}]}}`:                                          true,
		`{"spec":{"containers":[{"name":"main"},{"name":"linkerd-proxy"}]}}`:                                    true,
	} {
		resp := decode(t, post(t, a, reviewOf("v1", "Pod", "CREATE", object))).Response
		if resp.Allowed != want || resp.Patch != nil {
			t.Errorf("%s: allowed %v, want %v", object, resp.Allowed, want)
		}
	}
	for _, namespace := range []string{"kube-system", "linkerd"} {
		for kind, object := range map[string]string{"Pod": plainPod, "Service": `{"spec":{"ports":[{"port":3306}]}}`} {
			body := strings.ReplaceAll(reviewOf("v1", kind, "CREATE", object), `"pottery"`, fmt.Sprintf("%q", namespace))
			if resp := decode(t, post(t, a, body)).Response; !resp.Allowed {
				t.Errorf("a %s of %s is rejected: %v", kind, namespace, resp.Result)
			}
		}
	}
}

// Numbers that would keep Kubernetes' parser busy for minutes are no concern of
// ours in a pod, and no quantity in an annotation.
func TestHugeExponents(t *testing.T) {
	const n = "1E-999999999"
	object := `{"metadata":{"annotations":{"config.linkerd.io/proxy-cpu-limit":"` + n + `",` +
		`"config.linkerd.io/proxy-additional-env":"[{\"name\":\"A\",\"valueFrom\":{\"resourceFieldRef\":{\"Divisor\":\"` + n + `\",\"divisor\":\"1\"}}}]"}},"spec":{"volumes":[{"name":"v","emptyDir":{"sizeLimit":"` + n +
		`"}}],"containers":[{"name":"main","resources":{"limits":{"cpu":"` + n + `"}}}]}}`
	resp := decode(t, post(t, admitter(map[string]string{"linkerd.io/inject": "enabled"}), reviewOf("v1", "Pod", "CREATE", object))).Response
	if !resp.Allowed || len(resp.Patch) == 0 || len(resp.Warnings) != 2 {
		t.Errorf("allowed %v, %d bytes of patch, warnings %q", resp.Allowed, len(resp.Patch), resp.Warnings)
	}
}

// A handler's error rejects the object in an ordinary answer.
func TestErrorsReject(t *testing.T) {
	broken := admitter(nil)
	broken.Settings = fixed{err: errors.New("no values")}
	for name, w := range map[string]*httptest.ResponseRecorder{
		"no values": post(t, broken, reviewOf("v1", "Pod", "CREATE", plainPod)),
		"close-wait-timeout needs proxyInit.runAsRoot": post(t, admitter(nil), reviewOf("v1", "Pod", "CREATE",
			`{"metadata":{"annotations":{"linkerd.io/inject":"enabled","config.linkerd.io/close-wait-timeout":"45s"}},"spec":{"containers":[{"name":"main"}]}}`)),
		"reading the pod": post(t, admitter(nil), reviewOf("v1", "Pod", "CREATE", `{"spec":7}`)),
	} {
		resp := decode(t, w).Response
		if w.Code != 200 || resp.Allowed || resp.UID != "u-7" || resp.Result == nil || !strings.Contains(resp.Result.Message, name) {
			t.Errorf("%s: %d %+v", name, w.Code, resp)
		}
	}
}

func FuzzReview(f *testing.F) {
	f.Add([]byte(reviewOf("v1", "Pod", "CREATE", plainPod)))
	f.Add([]byte(reviewOf("v1", "Service", "CREATE", `{"spec":{"ports":[{"port":3306}]}}`)))
	f.Add([]byte(reviewOf("v1", "Pod", "CREATE", `null`)))
	f.Add([]byte(`{`))
	a := admitter(map[string]string{"linkerd.io/inject": "enabled"})
	f.Fuzz(func(t *testing.T, body []byte) {
		if w := post(t, a, string(body)); w.Code != 200 && w.Code != 400 {
			t.Errorf("status %d for %q", w.Code, body)
		}
	})
}

// What a stranger sends, no API server has judged: whatever is said of it stays short.
func TestNothingLongIsSaid(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	var out bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	for _, object := range []string{
		`{"metadata":{"name":"` + long + `","annotations":{"linkerd.io/inject":"enabled","config.linkerd.io/admin-port":"` + long + `","config.linkerd.io/proxy-cpu-limit":"` + long + `"},` +
			`"ownerReferences":[{"kind":"` + long + `","name":"` + long + `"}]},"spec":{"containers":[{"name":"main"}]}}`,
		`{"metadata":{"annotations":{"linkerd.io/inject":"enabled","config.linkerd.io/proxy-log-http-headers":"` + long + `"}},"spec":{"containers":[{"name":"main"}]}}`,
		`{"metadata":{"name":7,"x":"` + long + `"}}`,
	} {
		body := strings.ReplaceAll(reviewOf("v1", "Pod", "CREATE", object), `"pottery"`, `"`+long+`"`)
		resp := decode(t, post(t, admitter(nil), body)).Response
		for _, w := range resp.Warnings {
			if len(w) > 256 { // an API server cuts longer ones
				t.Errorf("a warning of %d bytes", len(w))
			}
		}
		if resp.Result != nil && len(resp.Result.Message) > 1000 {
			t.Errorf("a reason of %d bytes", len(resp.Result.Message))
		}
	}
	if out.Len() > 10_000 {
		t.Errorf("%d bytes of logs: %.2000s", out.Len(), out.Bytes())
	}
}
