package tell

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWhatIsThereBeforeTraffic(t *testing.T) {
	m := New(Config{})
	m.Connections(TCPRoute, Labels{{"route_name", "r"}}).Closed(InvalidBackend)
	m.Detections(InboundDetect, InboundDetectTime, nil).Found("http/2", 50*time.Millisecond)
	got := text(t, m)
	for _, want := range []string{
		`outbound_tcp_route_open_total{route_name="r"} 0`,
		`outbound_tcp_route_close_total{error="",route_name="r"} 0`,
		`outbound_tcp_route_close_total{error="forbidden",route_name="r"} 0`,
		`outbound_tcp_route_close_total{error="invalid_backend",route_name="r"} 1`,
		`outbound_tcp_route_close_total{error="invalid_policy",route_name="r"} 0`,
		`outbound_tcp_route_close_total{error="unexpected",route_name="r"} 0`,
		`inbound_tcp_detect_http_results_total{result="not_http"} 0`,
		`inbound_tcp_detect_http_results_total{result="http/1"} 0`,
		`inbound_tcp_detect_http_results_total{result="http/2"} 1`,
		`inbound_tcp_detect_http_results_total{result="read_timeout"} 0`,
		`inbound_tcp_detect_http_results_total{result="error"} 0`,
		`inbound_tcp_detect_http_duration_seconds_bucket{le="0.001"} 0`,
		`inbound_tcp_detect_http_duration_seconds_bucket{le="0.1"} 1`,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
}

// TestBalancerFamilies: every family of spec/proxy.md §15.4 and §15.5.
func TestBalancerFamilies(t *testing.T) {
	for prefix, f := range map[string]Balancer{
		"outbound_http_balancer_": OutboundBalancer("http"), "outbound_tls_balancer_": OutboundBalancer("tls"),
		"control_identity_balancer_": ControlBalancer("identity"), "opentelemetry_balancer_": ControlBalancer("trace_collector"),
	} {
		m := New(Config{})
		m.BindBalancer(f, nil)
		var got []string
		for _, line := range text(t, m) {
			got = append(got, line[len(prefix):])
		}
		want := []string{
			`endpoints{endpoint_state="pending"} 0`, `endpoints{endpoint_state="ready"} 0`, "p2c_endpoints 0",
			`p2c_updates_total{op="Add"} 0`, `p2c_updates_total{op="DoesNotExist"} 0`, `p2c_updates_total{op="Remove"} 0`, `p2c_updates_total{op="Reset"} 0`,
			"queue_gate_open_time_seconds 0", "queue_gate_open_total 1", "queue_gate_shut_time_seconds 0", "queue_gate_shut_total 0", "queue_gate_timeout_seconds 0",
			`queue_latency_seconds_bucket{le="0.0005"} 0`, `queue_latency_seconds_bucket{le="0.005"} 0`, `queue_latency_seconds_bucket{le="0.05"} 0`,
			`queue_latency_seconds_bucket{le="0.5"} 0`, `queue_latency_seconds_bucket{le="1"} 0`, `queue_latency_seconds_bucket{le="3"} 0`,
			`queue_latency_seconds_bucket{le="+Inf"} 0`, "queue_latency_seconds_sum 0", "queue_latency_seconds_count 0", "queue_length 0", "queue_requests_total 0",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", prefix, diff)
		}
	}
}

func TestOnlyOldFamiliesFade(t *testing.T) {
	c := &clock{now: time.Unix(0, 0)}
	m := New(Config{RetainIdle: time.Minute, Now: c.Now})
	for _, f := range []Family{RequestTotal, TCPOpenTotal, RouteRequests, InboundHTTPAllow, InboundHTTPRequests, OutboundHTTPBackendRequests, SpanExports} {
		m.Counter(f, nil).Inc()
	}
	for i := range few + 1 {
		m.Counter(OutboundHTTPRetries, Labels{{"n", fmt.Sprint(i)}})
	}
	for range 4 {
		text(t, m)
		c.advance(time.Minute)
	}
	want := []string{"inbound_http_requests_total 1", "opentelemetry_span_exports 1", "outbound_http_route_backend_requests_total 1"}
	if diff := cmp.Diff(want, text(t, m)); diff != "" {
		t.Error(diff)
	}
}

func TestCodeNames(t *testing.T) {
	for in, want := range map[string]string{"0": "OK", "7": "PERMISSION_DENIED", "16": "UNAUTHENTICATED", "17": "UNKNOWN", "": "UNKNOWN", "OK": "UNKNOWN", "-1": "UNKNOWN"} {
		if got := CodeName(in); got != want {
			t.Errorf("CodeName(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestNobodyWaited(t *testing.T) {
	m := New(Config{})
	h := m.HTTP(nil)
	h.Start().End(End{}, time.Second)
	h.Start().End(End{Error: Timeout}, time.Second)
	got := text(t, m)
	for _, want := range []string{"request_total 2", `response_total{classification="failure",error="timeout"} 1`} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
	if slices.Contains(got, `response_total{classification="failure"} 1`) {
		t.Errorf("a response that there was not is counted: %q", got)
	}
}
