package config

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// variables is the list of spec/proxy.md §2. good changes the configuration, bad
// is nonsense ("" if no text is), with is what good needs beside it, or without (-).
var variables = []struct{ name, good, bad, with string }{
	{"OUTBOUND_LISTEN_ADDR", "127.0.0.1:1", "nowhere", ""},
	{"OUTBOUND_LISTEN_ADDRS", "127.0.0.1:1,[::1]:1", "127.0.0.1", ""},
	{"INBOUND_LISTEN_ADDR", "127.0.0.1:1", "4143", ""},
	{"CONTROL_LISTEN_ADDR", "127.0.0.1:1", "x", ""},
	{"ADMIN_LISTEN_ADDR", "127.0.0.1:1", "x", ""},
	{"INBOUND_DETECT_TIMEOUT", "1s", "1", ""},
	{"OUTBOUND_DETECT_TIMEOUT", "1s", "s", ""},
	{"INBOUND_CONNECT_TIMEOUT", "100ms", "-1s", ""},
	{"OUTBOUND_CONNECT_TIMEOUT", "2s", "1.5s", ""},
	{"INBOUND_ACCEPT_KEEPALIVE", "10000ms", "ms", ""},
	{"OUTBOUND_ACCEPT_KEEPALIVE", "1s", "1 s", ""},
	{"INBOUND_CONNECT_KEEPALIVE", "1s", "x", ""},
	{"OUTBOUND_CONNECT_KEEPALIVE", "1s", "x", ""},
	{"INBOUND_ACCEPT_USER_TIMEOUT", "30s", "x", ""},
	{"OUTBOUND_ACCEPT_USER_TIMEOUT", "30s", "x", ""},
	{"INBOUND_CONNECT_USER_TIMEOUT", "30s", "x", ""},
	{"OUTBOUND_CONNECT_USER_TIMEOUT", "30s", "x", ""},
	{"INBOUND_TCP_LISTEN_BACKLOG", "128", "-1", ""},
	{"OUTBOUND_TCP_LISTEN_BACKLOG", "128", "4294967296", ""},
	{"INBOUND_HTTP_QUEUE_CAPACITY", "1", "x", ""},
	{"INBOUND_HTTP_FAILFAST_TIMEOUT", "2s", "x", ""},
	{"OUTBOUND_TCP_QUEUE_CAPACITY", "1", "x", ""},
	{"OUTBOUND_TCP_FAILFAST_TIMEOUT", "2s", "x", ""},
	{"OUTBOUND_HTTP_QUEUE_CAPACITY", "1", "-1", ""},
	{"OUTBOUND_HTTP_FAILFAST_TIMEOUT", "2s", "x", ""},
	{"INBOUND_MAX_IN_FLIGHT", "1", "x", ""},
	{"OUTBOUND_MAX_IN_FLIGHT", "1", "x", ""},
	{"MAX_IDLE_CONNS_PER_ENDPOINT", "1", "x", ""},
	{"OUTBOUND_MAX_IDLE_CONNS_PER_ENDPOINT", "1", "x", ""},
	{"INBOUND_HTTP1_CONNECTION_POOL_IDLE_TIMEOUT", "1s", "x", ""},
	{"OUTBOUND_HTTP1_CONNECTION_POOL_IDLE_TIMEOUT", "1s", "x", ""},
	{"OUTBOUND_DISCOVERY_IDLE_TIMEOUT", "1s", "x", ""},
	{"INBOUND_DISCOVERY_IDLE_TIMEOUT", "1s", "x", ""},
	{"INBOUND_CONNECT_EXP_BACKOFF_MIN", "1s", "x", "INBOUND_CONNECT_EXP_BACKOFF_MAX=1m"},
	{"INBOUND_CONNECT_EXP_BACKOFF_MAX", "1m", "1ms", "INBOUND_CONNECT_EXP_BACKOFF_MIN=1s"},
	{"INBOUND_CONNECT_EXP_BACKOFF_JITTER", "0.5", "NaN", "INBOUND_CONNECT_EXP_BACKOFF_MIN=1s INBOUND_CONNECT_EXP_BACKOFF_MAX=1m"},
	{"OUTBOUND_CONNECT_EXP_BACKOFF_MIN", "1s", "0", "OUTBOUND_CONNECT_EXP_BACKOFF_MAX=1m"},
	{"OUTBOUND_CONNECT_EXP_BACKOFF_MAX", "1h", "x", "OUTBOUND_CONNECT_EXP_BACKOFF_MIN=1s"},
	{"OUTBOUND_CONNECT_EXP_BACKOFF_JITTER", "0.5", "-1", "OUTBOUND_CONNECT_EXP_BACKOFF_MIN=1s OUTBOUND_CONNECT_EXP_BACKOFF_MAX=1m"},
	{"METRICS_RETAIN_IDLE", "1m", "x", ""},
	{"METRICS_LEVEL", "minimal", "huge", ""},
	{"SHUTDOWN_GRACE_PERIOD", "1m", "x", ""},
	{"SHUTDOWN_ENDPOINT_ENABLED", "true", "TRUE", ""},
	{"HTTP2_INITIAL_STREAM_WINDOW_SIZE", "1", "x", ""},
	{"HTTP2_INITIAL_CONNECTION_WINDOW_SIZE", "1", "x", ""},
	{"INBOUND_SERVER_HTTP2_INITIAL_STREAM_WINDOW_SIZE", "1", "x", "INBOUND_SERVER_HTTP2_INITIAL_CONNECTION_WINDOW_SIZE=1"},
	{"INBOUND_SERVER_HTTP2_INITIAL_CONNECTION_WINDOW_SIZE", "1", "x", "INBOUND_SERVER_HTTP2_INITIAL_STREAM_WINDOW_SIZE=1"},
	{"OUTBOUND_SERVER_HTTP2_INITIAL_STREAM_WINDOW_SIZE", "1", "x", "OUTBOUND_SERVER_HTTP2_INITIAL_CONNECTION_WINDOW_SIZE=1"},
	{"OUTBOUND_SERVER_HTTP2_INITIAL_CONNECTION_WINDOW_SIZE", "1", "x", "OUTBOUND_SERVER_HTTP2_INITIAL_STREAM_WINDOW_SIZE=1"},
	{"INBOUND_SERVER_HTTP2_ADAPTIVE_FLOW_CONTROL", "true", "yes", ""},
	{"OUTBOUND_SERVER_HTTP2_ADAPTIVE_FLOW_CONTROL", "true", "1", ""},
	{"INBOUND_SERVER_HTTP2_KEEP_ALIVE_INTERVAL", "10s", "x", "INBOUND_SERVER_HTTP2_KEEP_ALIVE_TIMEOUT=3s"},
	{"INBOUND_SERVER_HTTP2_KEEP_ALIVE_TIMEOUT", "3s", "x", "INBOUND_SERVER_HTTP2_KEEP_ALIVE_INTERVAL=3s"},
	{"OUTBOUND_SERVER_HTTP2_KEEP_ALIVE_INTERVAL", "10s", "x", "OUTBOUND_SERVER_HTTP2_KEEP_ALIVE_TIMEOUT=3s"},
	{"OUTBOUND_SERVER_HTTP2_KEEP_ALIVE_TIMEOUT", "3s", "x", "OUTBOUND_SERVER_HTTP2_KEEP_ALIVE_INTERVAL=3s"},
	{"INBOUND_SERVER_HTTP2_MAX_CONCURRENT_STREAMS", "1", "x", ""},
	{"OUTBOUND_SERVER_HTTP2_MAX_CONCURRENT_STREAMS", "1", "x", ""},
	{"INBOUND_SERVER_HTTP2_MAX_CONNECTION_AGE", "15m", "x", ""},
	{"OUTBOUND_SERVER_HTTP2_MAX_CONNECTION_AGE", "15m", "x", ""},
	{"INBOUND_SERVER_HTTP2_MAX_FRAME_SIZE", "1", "x", ""},
	{"OUTBOUND_SERVER_HTTP2_MAX_FRAME_SIZE", "1", "x", ""},
	{"INBOUND_SERVER_HTTP2_MAX_HEADER_LIST_SIZE", "1", "x", ""},
	{"OUTBOUND_SERVER_HTTP2_MAX_HEADER_LIST_SIZE", "1", "x", ""},
	{"INBOUND_SERVER_HTTP2_MAX_PENDING_ACCEPT_RESET_STREAMS", "1", "x", ""},
	{"OUTBOUND_SERVER_HTTP2_MAX_PENDING_ACCEPT_RESET_STREAMS", "1", "x", ""},
	{"INBOUND_SERVER_HTTP2_MAX_SEND_BUF_SIZE", "1", "x", ""},
	{"OUTBOUND_SERVER_HTTP2_MAX_SEND_BUF_SIZE", "1", "x", ""},
	{"DESTINATION_SVC_ADDR", "localhost.:1", "dst", ""},
	{"DESTINATION_SVC_NAME", "dst.id", "", "DESTINATION_SVC_ADDR=dst.ns:1"},
	{"POLICY_SVC_ADDR", "localhost.:1", ":1", ""},
	{"POLICY_SVC_NAME", "dst.id", "", "POLICY_SVC_ADDR=dst.ns:1"},
	{"IDENTITY_SVC_ADDR", "localhost.:1", "x:0", ""},
	{"IDENTITY_SVC_NAME", "dst.id", "", "IDENTITY_SVC_ADDR=dst.ns:1"},
	{"DESTINATION_CONTEXT", `{"ns":"a"}`, "", ""},
	{"DESTINATION_PROFILE_SUFFIXES", ".", "..", ""},
	{"DESTINATION_PROFILE_NETWORKS", "10.0.0.0/8", "ten", ""},
	{"DESTINATION_PROFILE_INITIAL_TIMEOUT", "1s", "x", ""},
	{"POLICY_WORKLOAD", "a:b", " ", ""},
	{"POLICY_CLUSTER_NETWORKS", "10.0.0.0/8", "10.0.0.0/99", ""},
	{"INBOUND_DEFAULT_POLICY", "deny", "allow", ""},
	{"INBOUND_PORTS", "80,90-92", "92-90", ""},
	{"INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION", "25,587", "smtp", ""},
	{"INBOUND_GATEWAY_SUFFIXES", "svc.cluster.local.", "a..b", ""},
	{"INBOUND_IPS", "10.0.0.1", "10.0.0.0/8", ""},
	{"CONTROL_STREAM_INITIAL_TIMEOUT", "3s", "x", ""},
	{"CONTROL_STREAM_IDLE_TIMEOUT", "5m", "x", ""},
	{"CONTROL_STREAM_LIFETIME", "1h", "x", ""},
	{"DNS_MIN_TTL", "1s", "x", ""},
	{"DNS_MAX_TTL", "1s", "x", ""},
	{"INGRESS_MODE", "true", "on", ""},
	{"OUTBOUND_DISABLE_INFORMATIONAL_HEADERS", "true", "on", ""},
	{"OUTBOUND_METRICS_HOSTNAME_LABELS", "true", "on", ""},
	{"INBOUND_METRICS_AUTHORITY_LABELS", "unsafe", "", ""},
	{"IDENTITY_DIR", "/other", "", ""},
	{"IDENTITY_TRUST_ANCHORS", "other pem", " ", ""},
	{"IDENTITY_TOKEN_FILE", "/other", " ", ""},
	{"IDENTITY_LOCAL_NAME", "other.ns", "other.ns.", ""},
	{"IDENTITY_SERVER_ID", "other.ns", "a b", "-IDENTITY_LOCAL_NAME IDENTITY_SERVER_NAME=other.ns"},
	{"IDENTITY_SERVER_NAME", "other.ns", "another.ns", "-IDENTITY_LOCAL_NAME IDENTITY_SERVER_ID=other.ns"},
	{"IDENTITY_MIN_REFRESH", "1s", "0", ""},
	{"IDENTITY_MAX_REFRESH", "1h", "1s", ""},
	{"IDENTITY_SPIRE_WORKLOAD_API_ADDRESS", "unix:///s", " ", "IDENTITY_SERVER_ID=spiffe://a/b IDENTITY_SERVER_NAME=b.ns"},
	{"IDENTITY_SPIRE_SOCKET", "unix:/s", " ", "IDENTITY_SERVER_ID=spiffe://a/b IDENTITY_SERVER_NAME=b.ns"},
	{"LINKERD2_PROXY_IDENTITY_SPIRE_EXP_BACKOFF_MIN", "1s", "x", "LINKERD2_PROXY_IDENTITY_SPIRE_EXP_BACKOFF_MAX=1m"},
	{"LINKERD2_PROXY_IDENTITY_SPIRE_EXP_BACKOFF_MAX", "1m", "x", "LINKERD2_PROXY_IDENTITY_SPIRE_EXP_BACKOFF_MIN=1s"},
	{"LINKERD2_PROXY_IDENTITY_SPIRE_EXP_BACKOFF_JITTER", "0.5", "x", "LINKERD2_PROXY_IDENTITY_SPIRE_EXP_BACKOFF_MIN=1s LINKERD2_PROXY_IDENTITY_SPIRE_EXP_BACKOFF_MAX=1m"},
	{"TAP_SVC_NAME", "tap.id", "a b", ""},
	{"TRACE_COLLECTOR_SVC_ADDR", "localhost.:4317", "x", ""},
	{"TRACE_COLLECTOR_SVC_NAME", "collector.id", "", "TRACE_COLLECTOR_SVC_ADDR=collector.ns:4317"},
	{"TRACE_SERVICE_NAME", "web", "", "TRACE_COLLECTOR_SVC_ADDR=localhost.:4317"},
	{"TRACE_ATTRIBUTES_PATH", "/labels", "", "TRACE_COLLECTOR_SVC_ADDR=localhost.:4317"},
	{"TRACE_EXTRA_ATTRIBUTES", "a=b", "", "TRACE_COLLECTOR_SVC_ADDR=localhost.:4317"},
	{"LOG", "debug", "", ""},
	{"LOG_FORMAT", "JSON", "xml", ""},
	{"ACCESS_LOG", "apache", "nginx", ""},
}

func TestEveryVariableOfTheSpec(t *testing.T) {
	for _, v := range variables {
		t.Run(v.name, func(t *testing.T) {
			env := least()
			for w := range strings.FieldsSeq(v.with) {
				if name, ok := strings.CutPrefix(w, "-"); ok {
					env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, Prefix+name+"=") })
					continue
				}
				env = append(env, Prefix+w)
			}
			c, err := Parse(append(env, Prefix+v.name+"="+v.good))
			if err != nil {
				t.Fatal(err)
			}
			without, err := Parse(env)
			c.Environ, without.Environ, c.Warnings, without.Warnings = nil, nil, nil, nil
			if err == nil && reflect.DeepEqual(c, without) { // else it is needed
				t.Errorf("%s=%s changes nothing", v.name, v.good)
			}
			if v.bad == "" {
				return
			}
			_, err = Parse(append(env, Prefix+v.name+"="+v.bad))
			if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(v.name, "LINKERD2_PROXY_")[:8]) {
				t.Errorf("%s=%q: %v, want a problem that names it", v.name, v.bad, err)
			}
		})
	}
}

// ignored are read, so that nonsense is found out, but change nothing.
var ignored = []string{
	"INBOUND_HTTP_QUEUE_CAPACITY", "INBOUND_HTTP_FAILFAST_TIMEOUT", "INBOUND_CONNECT_EXP_BACKOFF",
	"SERVER_HTTP2_ADAPTIVE_FLOW_CONTROL", "MAX_PENDING_ACCEPT_RESET_STREAMS", "MAX_SEND_BUF_SIZE",
	"INBOUND_PORTS_REQUIRE_IDENTITY", "INBOUND_PORTS_REQUIRE_TLS", "TRACE_PROTOCOL", "TRACE_ANNOTATIONS_PATH",
}

func TestWhatIsIgnoredIsWrittenDown(t *testing.T) {
	b, err := os.ReadFile("../../COMPATIBILITY.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range ignored {
		if !strings.Contains(string(b), name) {
			t.Errorf("COMPATIBILITY.md does not say why %s changes nothing", name)
		}
	}
}

func TestAttributes(t *testing.T) {
	got := ParseAttributes("a=\"b\"\n\nnonsense\nc = d=e\n=x\n")
	if diff := cmp.Diff(map[string]string{"a": "b", "c": "d=e"}, got); diff != "" {
		t.Error(diff)
	}
	c := parse(t, "LINKERD2_PROXY_TRACE_COLLECTOR_SVC_ADDR=localhost.:1", "LINKERD2_PROXY_TRACE_EXTRA_ATTRIBUTES=a=1\nb=2",
		"OTEL_RESOURCE_ATTRIBUTES=a=3,c=4", "HOSTNAME=pod")
	if diff := cmp.Diff(map[string]string{"a": "3", "b": "2", "c": "4"}, c.Trace.Attributes); diff != "" || c.Trace.Hostname != "pod" {
		t.Error(diff, c.Trace)
	}
}
