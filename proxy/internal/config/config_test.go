package config

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// least is what must be set.
func least() []string {
	return []string{
		"LINKERD2_PROXY_DESTINATION_SVC_ADDR=127.0.0.1:8086",
		"LINKERD2_PROXY_POLICY_SVC_ADDR=localhost.:8090",
		"LINKERD2_PROXY_IDENTITY_SVC_ADDR=[::1]:8080",
		"LINKERD2_PROXY_POLICY_WORKLOAD=ns:pod",
		"LINKERD2_PROXY_IDENTITY_DIR=/id",
		"LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS=pem",
		"LINKERD2_PROXY_IDENTITY_TOKEN_FILE=/token",
		"LINKERD2_PROXY_IDENTITY_LOCAL_NAME=Me.ns.example",
	}
}

func parse(t *testing.T, more ...string) Config {
	t.Helper()
	c, err := Parse(append(least(), more...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDefaults(t *testing.T) {
	c := parse(t)
	in := Direction{
		Listen:        []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:4143")},
		DetectTimeout: 10 * time.Second, ConnectTimeout: 300 * time.Millisecond, DiscoveryIdle: 90 * time.Second,
		HTTPQueue: Queue{10000, time.Second}, MaxInFlight: 100000, MaxIdle: 10000, PoolIdle: 3 * time.Second,
		Backoff: Backoff{100 * time.Millisecond, 10 * time.Second, 0.1},
		Server:  Server{Windows: Windows{65535, 1048576}},
	}
	out := in
	out.Listen = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:4140")}
	out.ConnectTimeout, out.DiscoveryIdle = time.Second, 5*time.Second
	out.HTTPQueue, out.TCPQueue = Queue{10000, 3 * time.Second}, Queue{10000, 3 * time.Second}
	out.Backoff.Max = time.Minute
	want := Config{
		Inbound: in, Outbound: out,
		AdminListen: netip.MustParseAddrPort("127.0.0.1:4191"), ControlListen: netip.MustParseAddrPort("0.0.0.0:4190"),
		ShutdownGrace: 2 * time.Minute, MetricsIdle: 10 * time.Minute, HTTP2: Windows{65535, 1048576},
		Destination: Destination{Svc: Svc{Addr: "127.0.0.1:8086"}, Suffixes: Suffixes{"svc.cluster.local"}, ProfileTimeout: 500 * time.Millisecond},
		Policy:      Policy{Svc: Svc{Addr: "localhost.:8090"}, Workload: "ns:pod", Default: "all-unauthenticated"},
		Identity: Identity{
			Svc: Svc{Addr: "[::1]:8080"}, Name: "me.ns.example", ServerName: "me.ns.example", Dir: "/id", Anchors: "pem", TokenFile: "/token",
			MinRefresh: 10 * time.Second, MaxRefresh: 24 * time.Hour,
			SPIRE: SPIRE{Backoff: Backoff{100 * time.Millisecond, time.Second, 0.1}},
		},
		Log: "warn,linkerd=info,hickory=error", LogFormat: "plain", MetricsLevel: "default",
	}
	if diff := cmp.Diff(want, c, cmpopts.IgnoreFields(Config{}, "Environ", "Warnings"), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

func TestValues(t *testing.T) {
	c := parse(t,
		"LINKERD2_PROXY_OUTBOUND_LISTEN_ADDR=10.0.0.1:1",
		"LINKERD2_PROXY_OUTBOUND_LISTEN_ADDRS=127.0.0.1:4140,[::1]:4140",
		"LINKERD2_PROXY_DESTINATION_SVC_ADDR=dst.ns.svc:8086",
		"LINKERD2_PROXY_DESTINATION_SVC_NAME=dst.id",
		"LINKERD2_PROXY_DESTINATION_PROFILE_SUFFIXES=.",
		"LINKERD2_PROXY_DESTINATION_PROFILE_NETWORKS=10.0.0.0/8,fd00::/8,1.2.3.4",
		"LINKERD2_PROXY_INBOUND_PORTS=8080,90-92,80",
		"LINKERD2_PROXY_INBOUND_IPS=10.0.0.1,::ffff:10.0.0.2",
		"LINKERD2_PROXY_INBOUND_SERVER_HTTP2_KEEP_ALIVE_INTERVAL=10s",
		"LINKERD2_PROXY_INBOUND_SERVER_HTTP2_KEEP_ALIVE_TIMEOUT=3s",
		"LINKERD2_PROXY_OUTBOUND_SERVER_HTTP2_KEEP_ALIVE_INTERVAL=10s", // alone: ignored
		"LINKERD2_PROXY_INBOUND_HTTP_FAILFAST_TIMEOUT=2s",
		"LINKERD2_PROXY_INGRESS_MODE=true",
		"LINKERD2_PROXY_CONTROL_STREAM_INITIAL_TIMEOUT=3s",
		"LINKERD2_PROXY_CONTROL_STREAM_IDLE_TIMEOUT=",
		"LINKERD2_PROXY_CONTROL_STREAM_LIFETIME=1h",
		"LINKERD2_PROXY_SOMETHING_NEW=whatever",
	)
	check := func(what string, ok bool) {
		t.Helper()
		if !ok {
			t.Errorf("%s: %+v", what, c)
		}
	}
	check("listeners", len(c.Outbound.Listen) == 2)
	check("service", !c.Destination.Svc.Loopback() && c.Destination.Svc.Name == "dst.id" && c.Policy.Svc.Loopback() && c.Identity.Svc.Loopback())
	check("suffixes", c.Destination.Suffixes.Contains("anything.at.all"))
	check("networks", len(c.Destination.Networks) == 3 && c.Destination.Networks[2].Bits() == 32)
	var ports []uint16
	c.Policy.Ports.Each(func(p uint16) bool { ports = append(ports, p); return true })
	check("ports", cmp.Equal(ports, []uint16{80, 90, 91, 92, 8080}) && c.Policy.Ports.Contains(91) && !c.Policy.Ports.Contains(93))
	check("addresses", c.Policy.IPs[1] == netip.MustParseAddr("10.0.0.2"))
	check("keepalive", c.Inbound.Server.KeepaliveTimeout == 3*time.Second && c.Outbound.Server.KeepaliveInterval == 0)
	check("failfast", c.Inbound.HTTPQueue.Failfast == 2*time.Second)
	check("ingress", c.Ingress && c.HideInformational)
	check("streams", c.Streams == Streams{Initial: 3 * time.Second, Lifetime: time.Hour})
}

func TestProblemsAreAllNamed(t *testing.T) {
	tests := []struct{ set, want string }{
		{"INBOUND_CONNECT_TIMEOUT=1", "without a unit"},
		{"INBOUND_CONNECT_TIMEOUT=1.5s", "unknown unit"},
		{"INBOUND_CONNECT_TIMEOUT=99999999999999999999s", "out of range"},
		{"INBOUND_CONNECT_TIMEOUT=9999999999999h", "out of range"},
		{"INGRESS_MODE=yes", "true or false"},
		{"INBOUND_PORTS=80-70", "port or range"},
		{"INBOUND_PORTS=-1", "port or range"},
		{"INBOUND_PORTS=0-65535", ""},
		{"INBOUND_IPS=10.0.0.0/8", "not an address"},
		{"INBOUND_IPS=", "not an address"}, // it would let any in
		{"INBOUND_IPS=10.0.0.1,,10.0.0.2", "not an address"},
		{"INBOUND_IPS=10.0.0.1,fd00::1", ""},
		{"INBOUND_LISTEN_ADDR=:4143", "INBOUND_LISTEN_ADDR"},
		{"OUTBOUND_LISTEN_ADDRS=1.1.1.1:1,1.1.1.2:1,1.1.1.3:1", "one or two"},
		{"POLICY_CLUSTER_NETWORKS=10.0.0.0/99", "not a network"},
		{"INBOUND_DEFAULT_POLICY=allow", "want one of"},
		{"INBOUND_DEFAULT_POLICY=cluster-authenticated", "POLICY_CLUSTER_NETWORKS: must be set"},
		{"INBOUND_DEFAULT_POLICY=audit", "POLICY_CLUSTER_NETWORKS: must be set"},
		{"DESTINATION_SVC_ADDR=dst:8086", "DESTINATION_SVC_NAME: must be set"},
		{"DESTINATION_SVC_ADDR=localhost:8086", "DESTINATION_SVC_NAME: must be set"}, // without the dot it is a name like others
		{"DESTINATION_SVC_ADDR=127.0.0.1", "host:port"},
		{"DESTINATION_SVC_ADDR=127.0.0.1:0", "no port"},
		{"DESTINATION_PROFILE_SUFFIXES=a..b", "not a domain suffix"},
		{"DESTINATION_SVC_NAME=a b", "not an identity"}, // though the address is loopback
		{"TRACE_COLLECTOR_SVC_NAME=collector.id", "TRACE_COLLECTOR_SVC_ADDR: must be set"},
		{"TRACE_COLLECTOR_SVC_ADDR=", ""},
		{"IDENTITY_DISABLED=1", "mandatory"},
		{"IDENTITY_SPIRE_SOCKET=/s", "IDENTITY_SERVER_ID"},
		{"IDENTITY_LOCAL_NAME=a.b.", "trailing dot"},
		{"IDENTITY_LOCAL_NAME=spiffe://a/b", "not an identity"},
		{"IDENTITY_TOKEN_FILE=", "must not be empty"},
		{"IDENTITY_MIN_REFRESH=25h", "MIN <= MAX"},
		{"INBOUND_CONNECT_EXP_BACKOFF_MIN=1s", "set together"},
		{"CONTROL_STREAM_LIFETIME=1s", ""},
		{"LOG_FORMAT=xml", "PLAIN or JSON"},
		{"INBOUND_MAX_IN_FLIGHT=-1", "not a count"},
		{"OUTBOUND_MAX_IDLE_CONNS_PER_ENDPOINT=18446744073709551615", ""},
		{"OUTBOUND_MAX_IDLE_CONNS_PER_ENDPOINT=18446744073709551616", "not a count"},
		{"OUTBOUND_CONNECT_EXP_BACKOFF_JITTER=0.5", "JITTER only beside them"},
	}
	var all []string
	for _, tt := range tests {
		_, err := Parse(append(least(), Prefix+tt.set))
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.set, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.set, err, tt.want)
		}
	}
	all = append(all, Prefix+"INGRESS_MODE=yes", Prefix+"INBOUND_PORTS=x", Prefix+"CONTROL_STREAM_INITIAL_TIMEOUT=2s", Prefix+"CONTROL_STREAM_IDLE_TIMEOUT=1s")
	_, err := Parse(all)
	if _, ok := errors.AsType[*Error](err); !ok {
		t.Fatalf("Parse = %v", err)
	}
	for _, name := range []string{"INGRESS_MODE", "INBOUND_PORTS", "CONTROL_STREAM:", "IDENTITY_DIR: must be set", "POLICY_WORKLOAD: must be set", "DESTINATION_SVC_ADDR: must be set"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named in %v", name, err)
		}
	}
}

// TestLocalNameGoesFirst: it is the older of two ways to say who the proxy is.
func TestLocalNameGoesFirst(t *testing.T) {
	c := parse(t, "LINKERD2_PROXY_IDENTITY_SERVER_ID=other.id", "LINKERD2_PROXY_IDENTITY_SERVER_NAME=other.id")
	if c.Identity.Name != "me.ns.example" || c.Identity.ServerName != "me.ns.example" {
		t.Errorf("%+v", c.Identity)
	}
}

func TestWarnings(t *testing.T) {
	for _, tt := range []struct{ set, want string }{
		{"INBOUND_DEFAULT_POLICY=deny", ""},
		{"INGRESS_MODE=false", "INBOUND_DEFAULT_POLICY: not set"},
		{"TRACE_COLLECTOR_SVC_ADDR=", "TRACE_COLLECTOR_SVC_ADDR: is empty"},
	} {
		c := parse(t, Prefix+tt.set)
		if got := strings.Join(c.Warnings, "\n"); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.set, got, tt.want)
		}
	}
}

func TestReplicas(t *testing.T) {
	c := parse(t, "LINKERD2_PROXY_DESTINATION_SVC_ADDR=127.0.0.2:8086, 127.0.0.3:8086")
	if got := c.Destination.Svc.Addrs(); !cmp.Equal(got, []string{"127.0.0.2:8086", "127.0.0.3:8086"}) || !c.Destination.Svc.Loopback() {
		t.Errorf("addresses %q", got)
	}
	if (Svc{Addr: "127.0.0.2:8086,10.0.0.1:8086"}).Loopback() {
		t.Error("a replica elsewhere would be called in plaintext")
	}
}

func TestSuffixes(t *testing.T) {
	s := Suffixes{"svc.cluster.local"}
	for name, want := range map[string]bool{
		"web.ns.svc.cluster.local": true, "WEB.ns.svc.Cluster.local.": true, "svc.cluster.local": true,
		"websvc.cluster.local": false, "example.com": false, "": false,
	} {
		if got := s.Contains(name); got != want {
			t.Errorf("Contains(%q) = %v", name, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, v := range []string{"10s", "0", "1-2,3", "10.0.0.0/8", "[::1]:80", "a.b:80", ".", "true", "default", "9223372036854775807d"} {
		f.Add("INBOUND_PORTS", v)
		f.Add("DESTINATION_SVC_ADDR", v)
		f.Add("SHUTDOWN_GRACE_PERIOD", v)
		f.Add("OUTBOUND_LISTEN_ADDRS", v)
		f.Add("DESTINATION_PROFILE_NETWORKS", v)
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		c, err := Parse(append(least(), Prefix+name+"="+value))
		if err != nil {
			return
		}
		if c.ShutdownGrace < 0 || len(c.Outbound.Listen) == 0 || len(c.Outbound.Listen) > 2 || c.Destination.Svc.Addr == "" {
			t.Errorf("%s=%q gave %+v", name, value, c)
		}
		if !c.Destination.Svc.Loopback() && c.Destination.Svc.Name == "" {
			t.Errorf("%s=%q gave a remote service without an identity", name, value)
		}
	})
}
