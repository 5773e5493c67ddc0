package demo

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const page1 = `# TYPE response_total counter
response_total{direction="inbound",classification="success",status_code="200",tls="true",client_id="web.shop.serviceaccount.identity.linkerd.cluster.local"} 90
response_total{direction="inbound",classification="failure",status_code="500",tls="true"} 10
response_total{direction="outbound",classification="success",status_code="200"} 1000
# TYPE request_total counter
request_total{direction="inbound",tls="true",client_id="web.shop.serviceaccount.identity.linkerd.cluster.local"} 99
request_total{direction="inbound",tls="no_identity"} 1
# TYPE tcp_open_total counter
tcp_open_total{direction="inbound",peer="dst",tls="no_identity"} 50
tcp_open_total{direction="inbound",peer="src",tls="true",client_id="web.shop.serviceaccount.identity.linkerd.cluster.local"} 4
# TYPE inbound_http_authz_deny_total counter
inbound_http_authz_deny_total{srv_kind="default"} 3
# TYPE response_latency_ms histogram
response_latency_ms_bucket{direction="inbound",le="1"} 50
response_latency_ms_bucket{direction="inbound",le="10"} 90
response_latency_ms_bucket{direction="inbound",le="+Inf"} 100
response_latency_ms_sum{direction="inbound"} 1
response_latency_ms_count{direction="inbound"} 100
`

func TestReadCountsInboundSideOnly(t *testing.T) {
	got, err := read(strings.NewReader(page1), time.Unix(100, 0))
	if err != nil {
		t.Fatal(err)
	}
	if got.ok != 90 || got.failed != 10 || got.denied != 3 || got.secure != 103 || got.open != 1 || got.conns != 4 {
		t.Errorf("read() = %+v", got)
	}
	if len(got.peers) != 1 {
		t.Errorf("peers = %v, want the one client", got.peers)
	}
	if _, err := read(strings.NewReader("not { metrics"), time.Unix(0, 0)); err == nil {
		t.Error("a page that is not metrics was read")
	}
}

func TestTable(t *testing.T) {
	now, err := read(strings.NewReader(page1), time.Unix(110, 0))
	if err != nil {
		t.Fatal(err)
	}
	rows := []row{
		between("books-1", sample{at: time.Unix(100, 0)}, now),
		between("idle-1", sample{at: time.Unix(100, 0)}, sample{at: time.Unix(101, 0)}),
		{name: "gone-1", state: "removed"},
	}
	want := strings.TrimLeft(`
WORKLOAD     SUCCESS     RPS     P50     P95     P99  CONN/S   MTLS  PEERS
books-1        90.0%    10.0   1.0ms  10.0ms  10.0ms     0.4  99.0%  web.shop
idle-1             -     0.0       -       -       -     0.0      -  
gone-1       removed
`, "\n")
	if diff := cmp.Diff(want, table(rows)); diff != "" {
		t.Errorf("table differs (-want +got):\n%s", diff)
	}
}

func TestQuantile(t *testing.T) {
	buckets := map[float64]float64{10: 10, 20: 20, math.Inf(1): 20}
	for _, c := range []struct{ q, want float64 }{{0.25, 5}, {0.5, 10}, {0.75, 15}, {1, 20}} {
		if got := quantile(buckets, c.q); got != c.want {
			t.Errorf("quantile(%v) = %v, want %v", c.q, got, c.want)
		}
	}
	if got := quantile(map[float64]float64{10: 0, math.Inf(1): 3}, 0.5); got != 10 {
		t.Errorf("above the last bound: %v, want 10", got)
	}
	if got := quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("without buckets: %v, want NaN", got)
	}
}

func TestSplitKeepsPodsApart(t *testing.T) {
	const manifests = `kind: Namespace
metadata: {name: shop}
---
kind: Pod
metadata: {name: web-1, namespace: shop}
spec: {containers: [{name: web, ports: [{containerPort: 8080}]}]}
status: {podIP: 127.1.0.1}
---
kind: Service
metadata: {name: web, namespace: shop}
`
	pods, rest, err := split([]byte(manifests))
	if err != nil {
		t.Fatal(err)
	}
	if len(pods) != 1 || pods[0].Name != "web-1" {
		t.Errorf("pods = %v, want web-1", pods)
	}
	if text := string(rest); strings.Contains(text, "Pod") || !strings.Contains(text, "Namespace") || !strings.Contains(text, "Service") {
		t.Errorf("rest = %s", text)
	}
	if _, _, err := split([]byte("kind: Pod\nmetadata: {name: bare}\n")); err == nil || !strings.Contains(err.Error(), "bare") {
		t.Errorf("a pod that can't run here: %v, want an error that names it", err)
	}
}

func TestEnvironmentResolvesFieldsAndEarlierNames(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "shop"},
		Spec:       corev1.PodSpec{ServiceAccountName: "web"},
		Status:     corev1.PodStatus{PodIP: "127.1.0.1"},
	}
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	got := environment(pod, &corev1.Container{Env: []corev1.EnvVar{
		{Name: "_pod_ns", ValueFrom: field("metadata.namespace")},
		{Name: "_pod_sa", ValueFrom: field("spec.serviceAccountName")},
		{Name: "NAME", Value: "$(_pod_sa).$(_pod_ns).$(unknown)"},
		{Name: "IPS", ValueFrom: field("status.podIPs")},
	}})
	want := map[string]string{"_pod_ns": "shop", "_pod_sa": "web", "NAME": "web.shop.$(unknown)", "IPS": "127.1.0.1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment differs (-want +got):\n%s", diff)
	}
}

func TestClaimLeavesForeignDirectory(t *testing.T) {
	m := &mesh{layout: layout{root: t.TempDir()}}
	if err := m.claim(); err == nil {
		t.Error("a directory that no demo made was taken")
	}
	m.root += "/new"
	for range 2 {
		if err := m.claim(); err != nil {
			t.Errorf("its own directory was refused: %v", err)
		}
	}
}
