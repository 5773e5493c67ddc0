package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// family is a line of spec/proxy.md §15.
type family struct {
	name    string
	kind    dto.MetricType
	labels  string // that some series of it must have
	buckets string // of a histogram
}

const (
	counterType, gaugeType, histogramType = dto.MetricType_COUNTER, dto.MetricType_GAUGE, dto.MetricType_HISTOGRAM

	targets   = "target_addr target_ip target_port"
	servers   = targets + " tls client_id srv_group srv_kind srv_name srv_port"
	judged    = servers + " route_group route_kind route_name authz_group authz_kind authz_name"
	inbounds  = "direction " + judged
	outbounds = "direction " + targets + " tls server_id dst_deployment"
	inRef     = "parent_group parent_kind parent_name parent_port route_group route_kind route_name"
	outRoute  = "parent_group parent_kind parent_namespace parent_name parent_port route_group route_kind route_namespace route_name"
	parents   = "parent_group parent_kind parent_namespace parent_name parent_port parent_section_name"
	balanced  = parents + " " + backends + " backend_section_name"
	backends  = "backend_group backend_kind backend_namespace backend_name backend_port"
	latencies = "1 2 3 4 5 10 20 30 40 50 100 200 300 400 500 1000 2000 3000 4000 5000 10000 20000 30000 40000 50000"
	seconds   = "0.025 0.05 0.1 0.25 0.5 1 10"
	responses = "0.05 0.5 1 10"
	waits     = "0.0005 0.005 0.05 0.5 1 3"
	sizes     = "128 1024 10240"
)

// served are the families that two proxies under traffic show.
var served = []family{
	{"request_total", counterType, inbounds, ""},
	{"request_total", counterType, outbounds, ""},
	{"response_total", counterType, inbounds + " status_code classification", ""},
	{"response_total", counterType, outbounds + " grpc_status", ""},
	{"response_latency_ms", histogramType, inbounds + " status_code", latencies},
	{"route_request_total", counterType, "direction dst rt_route", ""},
	{"route_response_total", counterType, "direction dst rt_route classification status_code", ""},
	{"route_response_latency_ms", histogramType, "direction dst rt_route", latencies},
	{"route_actual_request_total", counterType, "direction dst rt_route", ""},
	{"route_actual_response_total", counterType, "direction dst rt_route classification", ""},
	{"control_request_total", counterType, "addr tls", ""},
	{"control_response_total", counterType, "addr classification grpc_status", ""},
	{"control_response_latency_ms", histogramType, "addr", latencies},
	{"tcp_open_total", counterType, "direction peer " + targets + " tls client_id srv_name", ""},
	{"tcp_open_connections", gaugeType, "direction peer tls", ""},
	{"tcp_read_bytes_total", counterType, "direction peer tls server_id dst_deployment", ""},
	{"tcp_write_bytes_total", counterType, "direction peer tls", ""},
	{"tcp_close_total", counterType, "direction peer tls", ""},
	{"inbound_http_authz_allow_total", counterType, judged, ""},
	{"inbound_http_authz_deny_total", counterType, targets + " tls client_id srv_name", ""},
	{"inbound_http_route_not_found_total", counterType, targets + " tls srv_name", ""},
	{"inbound_http_local_ratelimit_total", counterType, targets + " ratelimit_group ratelimit_kind ratelimit_name ratelimit_scope", ""},
	{"inbound_tcp_authz_allow_total", counterType, targets + " tls srv_name authz_name", ""},
	{"inbound_tcp_authz_deny_total", counterType, targets + " tls srv_name", ""},
	{"inbound_http_errors_total", counterType, "error", ""},
	{"inbound_tcp_errors_total", counterType, targets + " error", ""},
	{"outbound_http_errors_total", counterType, "error", ""},
	{"outbound_tcp_errors_total", counterType, "error", ""},

	{"inbound_http_requests_total", counterType, inRef, ""},
	{"inbound_grpc_requests_total", counterType, inRef, ""},
	{"inbound_http_request_duration_seconds", histogramType, inRef, seconds},
	{"inbound_grpc_request_duration_seconds", histogramType, inRef, seconds},
	{"inbound_http_response_duration_seconds", histogramType, inRef, responses},
	{"inbound_grpc_response_duration_seconds", histogramType, inRef, responses},
	{"inbound_http_request_frame_size_bytes", histogramType, inRef, sizes},
	{"inbound_grpc_request_frame_size_bytes", histogramType, inRef, sizes},
	{"inbound_http_response_frame_size_bytes", histogramType, inRef, sizes},
	{"inbound_grpc_response_frame_size_bytes", histogramType, inRef, sizes},
	{"inbound_http_statuses_total", counterType, inRef + " status", ""},
	{"inbound_grpc_statuses_total", counterType, inRef + " status", ""},
	{"inbound_tcp_transport_header_connections_total", counterType, "session_protocol target_port client_id", ""},

	{"outbound_tcp_protocol_connections_total", counterType, "protocol parent_kind parent_name", ""},
	{"outbound_http_route_request_duration_seconds", histogramType, outRoute, responses},
	{"outbound_grpc_route_request_duration_seconds", histogramType, outRoute, responses},
	{"outbound_http_route_request_statuses_total", counterType, outRoute + " http_status", ""},
	{"outbound_grpc_route_request_statuses_total", counterType, outRoute + " grpc_status", ""},
	{"outbound_http_route_request_statuses_total", counterType, outRoute + " hostname", ""},
	{"outbound_http_route_request_frame_size_bytes", histogramType, outRoute, sizes},
	{"outbound_grpc_route_request_frame_size_bytes", histogramType, outRoute, sizes},
	{"outbound_http_route_retry_requests_total", counterType, outRoute, ""},
	{"outbound_http_route_retry_successes_total", counterType, outRoute, ""},
	{"outbound_http_route_retry_limit_exceeded_total", counterType, outRoute + " hostname", ""},
	{"outbound_http_route_retry_overflow_total", counterType, outRoute + " hostname", ""},
	{"outbound_http_route_backend_requests_total", counterType, outRoute + " " + backends, ""},
	{"outbound_grpc_route_backend_requests_total", counterType, outRoute + " " + backends, ""},
	{"outbound_http_route_backend_response_duration_seconds", histogramType, outRoute + " " + backends, seconds},
	{"outbound_grpc_route_backend_response_duration_seconds", histogramType, outRoute + " " + backends, seconds},
	{"outbound_http_route_backend_response_statuses_total", counterType, outRoute + " http_status", ""},
	{"outbound_grpc_route_backend_response_statuses_total", counterType, outRoute + " grpc_status", ""},
	{"outbound_http_route_backend_response_frame_size_bytes", histogramType, outRoute, sizes},
	{"outbound_grpc_route_backend_response_frame_size_bytes", histogramType, outRoute, sizes},
	{"outbound_tcp_route_open_total", counterType, outRoute, ""},
	{"outbound_tcp_route_close_total", counterType, outRoute, ""},
	{"outbound_tcp_transfer_cost_bytes_total", counterType, "op zone_locality", ""},
	{"outbound_http_balancer_p2c_endpoints", gaugeType, balanced, ""},
	{"outbound_tcp_balancer_p2c_endpoints", gaugeType, balanced, ""},
	{"outbound_http_balancer_p2c_updates_total", counterType, balanced + " op", ""},
	{"outbound_http_balancer_endpoints", gaugeType, balanced + " endpoint_state", ""},
	{"outbound_http_balancer_queue_length", gaugeType, balanced, ""},
	{"outbound_tcp_balancer_queue_length", gaugeType, balanced, ""},
	{"outbound_http_balancer_queue_requests_total", counterType, balanced, ""},
	{"outbound_http_balancer_queue_latency_seconds", histogramType, balanced, waits},
	{"outbound_http_balancer_queue_gate_open_total", counterType, balanced, ""},
	{"outbound_http_balancer_queue_gate_shut_total", counterType, balanced, ""},
	{"outbound_http_balancer_queue_gate_open_time_seconds", gaugeType, balanced, ""},
	{"outbound_http_balancer_queue_gate_shut_time_seconds", gaugeType, balanced, ""},
	{"outbound_http_balancer_queue_gate_timeout_seconds", gaugeType, balanced, ""},

	{"control_identity_cert_expiration_timestamp_seconds", gaugeType, "", ""},
	{"control_identity_cert_refresh_timestamp_seconds", gaugeType, "", ""},
	{"control_identity_cert_refreshes_total", counterType, "result", ""},
	{"control_dns_resolutions_total", counterType, "client record_type result", ""},
	{"control_identity_balancer_p2c_endpoints", gaugeType, "addr", ""},
	{"control_destination_balancer_p2c_endpoints", gaugeType, "addr", ""},
	{"control_policy_balancer_p2c_endpoints", gaugeType, "addr", ""},
	{"control_policy_balancer_p2c_updates_total", counterType, "addr op", ""},
	{"control_policy_balancer_endpoints", gaugeType, "addr endpoint_state", ""},
	{"control_policy_balancer_queue_length", gaugeType, "addr", ""},
	{"control_policy_balancer_queue_requests_total", counterType, "addr", ""},
	{"control_policy_balancer_queue_latency_seconds", histogramType, "addr", waits},
	{"control_policy_balancer_queue_gate_open_total", counterType, "addr", ""},
	{"control_policy_balancer_queue_gate_shut_total", counterType, "addr", ""},
	{"control_policy_balancer_queue_gate_open_time_seconds", gaugeType, "addr", ""},
	{"control_policy_balancer_queue_gate_shut_time_seconds", gaugeType, "addr", ""},
	{"control_policy_balancer_queue_gate_timeout_seconds", gaugeType, "addr", ""},
	{"opentelemetry_span_export_streams", counterType, "", ""},
	{"opentelemetry_span_export_requests", counterType, "", ""},
	{"opentelemetry_span_exports", counterType, "", ""},
	{"proxy_build_info", gaugeType, "git_sha profile vendor version", ""},
	{"rustls_info", gaugeType, "tls_suites tls_kx_groups tls_rand tls_key_provider tls_fips", ""},
	{"process_start_time_seconds", gaugeType, "", ""},
	{"process_uptime_seconds_total", counterType, "", ""},
	{"process_clock_time_seconds", gaugeType, "", ""},
	{"process_cpu_seconds_total", counterType, "", ""},
	{"process_resident_memory_bytes", gaugeType, "", ""},
	{"process_virtual_memory_bytes", gaugeType, "", ""},
	{"process_open_fds", gaugeType, "", ""},
	{"process_max_fds", gaugeType, "", ""},
	{"process_threads", gaugeType, "", ""},
}

// TestEveryFamilyOfTheSpec compares a scrape of two proxies under traffic with
// spec/proxy.md §15. Families that this traffic does not show are named in
// COMPATIBILITY.md, with the test that does, or with why there are none.
func TestEveryFamilyOfTheSpec(t *testing.T) {
	scrapes := underTraffic(t)
	for _, want := range served {
		t.Run(want.name, func(t *testing.T) {
			var have []string
			for _, families := range scrapes {
				f := families[want.name]
				if f == nil {
					continue
				}
				if f.GetType() != want.kind {
					t.Errorf("it is a %v, want a %v", f.GetType(), want.kind)
				}
				for _, m := range f.GetMetric() {
					have = append(have, fmt.Sprint(m.GetLabel()))
					if fits(m, strings.Fields(want.labels)) && (want.buckets == "" || bounds(m) == want.buckets) {
						return
					}
				}
			}
			t.Errorf("no series with the labels %s and the buckets %q among\n%s", want.labels, want.buckets, strings.Join(have, "\n"))
		})
	}
}

// also are the labels that series may have besides those of the table, by how the
// names of their families begin.
var also = map[string]string{
	"request_total": "authority no_tls_reason", "response_": outbounds + " authority no_tls_reason error", "route_": "status_code error",
	"control_re": "tls server_id no_tls_reason error status_code", "tcp_": servers + " no_tls_reason errno server_id sni dst_deployment",
	"inbound_": "no_tls_reason", "inbound_http_authz": judged, "inbound_tcp_authz": judged, "inbound_http_route_not_found": servers,
	"inbound_http_local_ratelimit": servers, "inbound_tcp_transport_header": "target_name", "outbound_tcp_protocol": parents,
	"outbound_http_route_re": parents + " hostname error", "outbound_grpc_route_re": parents + " hostname error", "outbound_tcp_route": parents + " error",
	"outbound_http_route_backend": balanced + " error", "outbound_grpc_route_backend": balanced + " error",
	"outbound_tcp_errors": targets, "proxy_build_info": "date",
}

// TestNoLabelsButThoseOfTheSpec: who sums over labels is wrong by those that were
// not thought of.
func TestNoLabelsButThoseOfTheSpec(t *testing.T) {
	may := map[string][]string{}
	for _, f := range served {
		may[f.name] = append(may[f.name], strings.Fields(f.labels)...)
		for start, labels := range also {
			if strings.HasPrefix(f.name, start) {
				may[f.name] = append(may[f.name], strings.Fields(labels)...)
			}
		}
	}
	told := map[string]bool{}
	for _, families := range underTraffic(t) {
		for name, labels := range may {
			for _, m := range families[name].GetMetric() {
				for _, l := range m.GetLabel() {
					if what := name + "{" + l.GetName() + "}"; !slices.Contains(labels, l.GetName()) && !told[what] {
						told[what] = true
						t.Error(what)
					}
				}
			}
		}
	}
}

func fits(m *dto.Metric, labels []string) bool {
	for _, name := range labels {
		if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == name }) {
			return false
		}
	}
	return true
}

func bounds(m *dto.Metric) string {
	var all []string
	for _, b := range m.GetHistogram().GetBucket() {
		if s := strconv.FormatFloat(b.GetUpperBound(), 'f', -1, 64); s != "+Inf" {
			all = append(all, s)
		}
	}
	return strings.Join(all, " ")
}

// scrape reads a proxy's metrics.
func scrape(t *testing.T, p *proxy) map[string]*dto.MetricFamily {
	t.Helper()
	code, body := p.admins(t, "/metrics")
	if code != 200 {
		t.Fatalf("/metrics: %d %s", code, body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	return families
}
