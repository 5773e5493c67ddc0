package admit_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weftmesh/weft/services/policy/internal/admit"
)

const (
	goodServer = `{"metadata":{"name":"s"},"spec":{"port":80,"podSelector":{}}}`
	badServer  = `{"metadata":{"name":"s"},"spec":{"port":80,"podSelector":{},"accessPolicy":"perhaps"}}`
)

func reviewOf(version, operation, group, kind, object string) string {
	return fmt.Sprintf(`{"apiVersion":"admission.k8s.io/%s","kind":"AdmissionReview","request":{"uid":"u-7","operation":%q,`+
		`"kind":{"group":%q,"version":"v1","kind":%q},"namespace":"grove","name":"s","object":%s}}`, version, operation, group, kind, object)
}

func post(t *testing.T, h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	return w
}

// answer is what a webhook says, on one line.
func answer(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	if w.Code != http.StatusOK || w.Body.Len() == 0 {
		return fmt.Sprint(w.Code)
	}
	var out struct {
		APIVersion string
		Kind       string
		Response   struct {
			UID     string
			Allowed bool
			Status  struct {
				Message string
				Code    int
			}
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	if out.Kind != "AdmissionReview" {
		t.Errorf("kind %q", out.Kind)
	}
	field, _, _ := strings.Cut(out.Response.Status.Message, " ")
	return fmt.Sprintf("%s %q %v %d %s", strings.TrimPrefix(out.APIVersion, "admission.k8s.io/"), out.Response.UID, out.Response.Allowed, out.Response.Status.Code, field)
}

func TestWebhook(t *testing.T) {
	const policy = "policy.linkerd.io"
	const gateway = "gateway.networking.k8s.io"
	profile := reviewOf("v1", "CREATE", "linkerd.io", "ServiceProfile", `{"metadata":{"name":"a"},"spec":{"routes":[null]}}`)
	hook := admit.New(prometheus.NewRegistry())
	for _, c := range []struct {
		name         string
		method, path string
		body         string
		policies     string // what the handler of policies says
		profiles     string // what the handler of profiles says
	}{
		{"good", "POST", "/", reviewOf("v1", "CREATE", policy, "Server", goodServer), `v1 "u-7" true 0 `, `v1 "u-7" true 0 `},
		{"bad", "POST", "/", reviewOf("v1", "UPDATE", policy, "Server", badServer), `v1 "u-7" false 400 spec.accessPolicy`, `v1 "u-7" false 400 spec.accessPolicy`},
		{"v1beta1", "POST", "/", reviewOf("v1beta1", "CREATE", policy, "server", badServer), `v1beta1 "u-7" false 400 spec.accessPolicy`, `v1beta1 "u-7" false 400 spec.accessPolicy`},
		{"a deletion", "POST", "/", reviewOf("v1", "DELETE", policy, "Server", "null"), `v1 "u-7" true 0 `, `v1 "u-7" true 0 `},
		{"nothing to create", "POST", "/", reviewOf("v1", "CREATE", policy, "Server", "null"), `v1 "u-7" false 400 Server`, `v1 "u-7" false 400 Server`},
		{"another's kind", "POST", "/", reviewOf("v1", "CREATE", "apps", "Deployment", "7"), `v1 "u-7" true 0 `, `v1 "u-7" true 0 `},
		{"unread", "POST", "/", reviewOf("v1", "CREATE", gateway, "HTTPRoute", `{"spec":{"rules":7}}`), `v1 "u-7" true 0 `, `v1 "u-7" true 0 `},
		{"a profile", "POST", "/", profile, `v1 "u-7" false 400 spec.routes[0]`, `v1 "u-7" false 400 spec.routes[0]`},
		{"another path", "POST", "/profiles", profile, "404", `v1 "u-7" false 400 spec.routes[0]`},
		{"another method", "GET", "/", "", "404", "200"},
		{"nothing", "POST", "/", "", `v1 "" false 400 the`, "200"},
		{"no JSON", "POST", "/", "{", `v1 "" false 400 the`, "400"},
		{"no review", "POST", "/", `{"kind":"Pod"}`, `v1 "" false 400 not`, "400"},
		{"no request", "POST", "/", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, `v1 "" false 400 the`, "400"},
		{"too large", "POST", "/", strings.Repeat(" ", 11<<20), "500", "500"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := [2]string{
				answer(t, post(t, hook.Policies(), c.method, c.path, c.body)),
				answer(t, post(t, hook.Profiles(), c.method, c.path, c.body)),
			}
			if d := cmp.Diff([2]string{c.policies, c.profiles}, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// TestCounts: what people make can't add to the series.
func TestCounts(t *testing.T) {
	reg := prometheus.NewRegistry()
	hook := admit.New(reg)
	for _, body := range []string{
		reviewOf("v1", "CREATE", "policy.linkerd.io", "Server", goodServer),
		reviewOf("v1", "CREATE", "policy.linkerd.io", "SERVER", badServer),
		reviewOf("v1", "CREATE", "x.io", "Something", "{}"),
		reviewOf("v1", "CREATE", "gateway.networking.k8s.io", "TCPRoute", "{}"),
	} {
		post(t, hook.Policies(), "POST", "/", body)
	}
	want := `# HELP weft_policy_reviews_total Objects that were reviewed, by kind and what became of them: admitted, denied, unread (of another project's kind, and admitted) or foreign (none of our kinds, and admitted).
# TYPE weft_policy_reviews_total counter
weft_policy_reviews_total{kind="",result="foreign"} 1
weft_policy_reviews_total{kind="Server",result="admitted"} 1
weft_policy_reviews_total{kind="Server",result="denied"} 1
weft_policy_reviews_total{kind="TCPRoute",result="unread"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func FuzzReview(f *testing.F) {
	f.Add([]byte(reviewOf("v1", "CREATE", "policy.linkerd.io", "Server", goodServer)))
	f.Add([]byte(reviewOf("v1", "UPDATE", "policy.linkerd.io", "HTTPRoute", `{"spec":{"rules":[null]}}`)))
	f.Add([]byte(reviewOf("v1", "CREATE", "linkerd.io", "ServiceProfile", `{"spec":{"routes":[null]}}`)))
	f.Add([]byte(`{"kind":"AdmissionReview"`))
	hook := admit.New(prometheus.NewRegistry())
	f.Fuzz(func(t *testing.T, body []byte) {
		if w := post(t, hook.Policies(), "POST", "/", string(body)); w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("policies: status %d for %q", w.Code, body)
		}
		if w := post(t, hook.Profiles(), "POST", "/", string(body)); w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Errorf("profiles: status %d for %q", w.Code, body)
		}
	})
}
