package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	httproute "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"
	netpb "github.com/linkerd/linkerd2-proxy-api/go/net"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
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
	inbounds  = "direction " + targets + " tls client_id srv_group srv_kind srv_name srv_port route_group route_kind route_name authz_group authz_kind authz_name"
	outbounds = "direction " + targets + " tls server_id dst_deployment"
	inRef     = "parent_group parent_kind parent_name route_group route_kind route_name"
	outRoute  = "parent_group parent_kind parent_namespace parent_name parent_port route_group route_kind route_namespace route_name"
	backends  = "backend_group backend_kind backend_namespace backend_name backend_port"
	latencies = "1 2 3 4 5 10 20 30 40 50 100 200 300 400 500 1000 2000 3000 4000 5000 10000 20000 30000 40000 50000"
	seconds   = "0.025 0.05 0.1 0.25 0.5 1 10"
	responses = "0.05 0.5 1 10"
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
	{"inbound_http_authz_allow_total", counterType, inbounds, ""},
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
	{"outbound_http_route_retry_limit_exceeded_total", counterType, outRoute, ""},
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
	{"outbound_http_balancer_p2c_endpoints", gaugeType, backends, ""},
	{"outbound_tcp_balancer_p2c_endpoints", gaugeType, backends, ""},
	{"outbound_http_balancer_p2c_updates_total", counterType, backends + " op", ""},
	{"outbound_http_balancer_endpoints", gaugeType, backends + " endpoint_state", ""},
	{"outbound_http_balancer_queue_length", gaugeType, backends, ""},
	{"outbound_tcp_balancer_queue_length", gaugeType, backends, ""},
	{"outbound_http_balancer_queue_requests_total", counterType, backends, ""},
	{"outbound_http_balancer_queue_latency_seconds", histogramType, backends, "0.0005 0.005 0.05 0.5 1 3"},
	{"outbound_http_balancer_queue_gate_open_total", counterType, backends, ""},
	{"outbound_http_balancer_queue_gate_shut_total", counterType, backends, ""},
	{"outbound_http_balancer_queue_gate_open_time_seconds", gaugeType, backends, ""},
	{"outbound_http_balancer_queue_gate_shut_time_seconds", gaugeType, backends, ""},
	{"outbound_http_balancer_queue_gate_timeout_seconds", gaugeType, backends, ""},

	{"control_identity_cert_expiration_timestamp_seconds", gaugeType, "", ""},
	{"control_identity_cert_refresh_timestamp_seconds", gaugeType, "", ""},
	{"control_identity_cert_refreshes_total", counterType, "result", ""},
	{"control_identity_balancer_p2c_endpoints", gaugeType, "addr", ""},
	{"control_destination_balancer_p2c_endpoints", gaugeType, "addr", ""},
	{"control_policy_balancer_p2c_endpoints", gaugeType, "addr", ""},
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

// town is a control plane with all kinds of answers.
type town struct {
	plane
	ep     atomic.Pointer[destination.WeightedAddr]
	strict chan struct{} // closed when clients may ask no more than once a second
}

const emptyName, profileName, grpcName = "empty.ns.svc.cluster.local:80", "profile.ns.svc.cluster.local:80", "grpc.ns.svc.cluster.local:80"

func (c *town) Get(r *destination.GetDestination, out grpc.ServerStreamingServer[destination.Update]) error {
	u := &destination.Update{Update: &destination.Update_Add{Add: &destination.WeightedAddrSet{
		Addrs: []*destination.WeightedAddr{c.ep.Load()}, MetricLabels: map[string]string{"deployment": "web"},
	}}}
	if r.GetPath() == emptyName {
		u = &destination.Update{Update: &destination.Update_NoEndpoints{NoEndpoints: &destination.NoEndpoints{Exists: true}}}
	}
	err := out.Send(u)
	<-out.Context().Done()
	return err
}

func (c *town) GetProfile(r *destination.GetDestination, out grpc.ServerStreamingServer[destination.DestinationProfile]) error {
	p := &destination.DestinationProfile{}
	if r.GetPath() == profileName {
		p.FullyQualifiedName = "profile.ns.svc.cluster.local"
		p.Routes = []*destination.Route{{
			Condition:     &destination.RequestMatch{Match: &destination.RequestMatch_Path{Path: &destination.PathMatch{Regex: "/ok.*"}}},
			MetricsLabels: map[string]string{"route": "ok"},
		}}
	}
	err := out.Send(p)
	<-out.Context().Done()
	return err
}

// roads are the town's outbound policies.
type roads struct {
	outbound.UnimplementedOutboundPoliciesServer
}

func (roads) Watch(spec *outbound.TrafficSpec, out grpc.ServerStreamingServer[outbound.OutboundPolicy]) error {
	name := spec.GetAuthority()
	if name == "" {
		return status.Error(codes.NotFound, "only names")
	}
	ref := func(group, kind, name string) *meta.Metadata {
		return &meta.Metadata{Kind: &meta.Metadata_Resource{Resource: &meta.Resource{Group: group, Kind: kind, Name: name, Namespace: "ns", Port: 80}}}
	}
	short, _, _ := strings.Cut(name, ".")
	backend := &outbound.Backend{
		Metadata: ref("core", "Service", short), Queue: &outbound.Queue{Capacity: 1, FailfastTimeout: durationpb.New(time.Second)},
		Kind: &outbound.Backend_Balancer{Balancer: &outbound.Backend_BalanceP2C{
			Discovery: &outbound.Backend_EndpointDiscovery{Kind: &outbound.Backend_EndpointDiscovery_Dst{Dst: &outbound.Backend_EndpointDiscovery_DestinationGet{Path: name}}},
			Load:      &outbound.Backend_BalanceP2C_PeakEwma_{PeakEwma: &outbound.Backend_BalanceP2C_PeakEwma{DefaultRtt: durationpb.New(30 * time.Millisecond), Decay: durationpb.New(10 * time.Second)}},
		}},
	}
	h := &outbound.HttpRoute{Metadata: ref("gateway.networking.k8s.io", "HTTPRoute", short), Rules: []*outbound.HttpRoute_Rule{{
		Backends: &outbound.HttpRoute_Distribution{Kind: &outbound.HttpRoute_Distribution_FirstAvailable_{FirstAvailable: &outbound.HttpRoute_Distribution_FirstAvailable{Backends: []*outbound.HttpRoute_RouteBackend{{Backend: backend}}}}},
		Retry:    &outbound.HttpRoute_Retry{MaxRetries: 1, MaxRequestBytes: 1 << 16, Conditions: &outbound.HttpRoute_Retry_Conditions{StatusRanges: []*outbound.HttpRoute_Retry_Conditions_StatusRange{{Start: 500, End: 599}}}},
	}}}
	o := &outbound.ProxyProtocol_Opaque{Routes: []*outbound.OpaqueRoute{{Metadata: ref("core", "Service", short), Rules: []*outbound.OpaqueRoute_Rule{{
		Backends: &outbound.OpaqueRoute_Distribution{Kind: &outbound.OpaqueRoute_Distribution_FirstAvailable_{FirstAvailable: &outbound.OpaqueRoute_Distribution_FirstAvailable{Backends: []*outbound.OpaqueRoute_RouteBackend{{Backend: backend}}}}},
	}}}}}
	p := &outbound.OutboundPolicy{Metadata: ref("core", "Service", short), Protocol: &outbound.ProxyProtocol{Kind: &outbound.ProxyProtocol_Detect_{Detect: &outbound.ProxyProtocol_Detect{
		Timeout: durationpb.New(time.Second), Opaque: o, Http1: &outbound.ProxyProtocol_Http1{Routes: []*outbound.HttpRoute{h}}, Http2: &outbound.ProxyProtocol_Http2{Routes: []*outbound.HttpRoute{h}},
	}}}}
	if name == grpcName {
		p.Protocol = &outbound.ProxyProtocol{Kind: &outbound.ProxyProtocol_Grpc_{Grpc: &outbound.ProxyProtocol_Grpc{Routes: []*outbound.GrpcRoute{{
			Metadata: ref("gateway.networking.k8s.io", "GRPCRoute", short),
			Rules: []*outbound.GrpcRoute_Rule{{Backends: &outbound.GrpcRoute_Distribution{Kind: &outbound.GrpcRoute_Distribution_FirstAvailable_{
				FirstAvailable: &outbound.GrpcRoute_Distribution_FirstAvailable{Backends: []*outbound.GrpcRoute_RouteBackend{{Backend: backend}}},
			}}}},
		}}}}}
	}
	err := out.Send(p)
	<-out.Context().Done()
	return err
}

// WatchPort has one route, below /ok, and in the end a limit for a client that calls often.
func (c *town) WatchPort(_ *pb.PortSpec, out grpc.ServerStreamingServer[pb.Server]) error {
	ref := func(kind, name string) *meta.Metadata {
		return &meta.Metadata{Kind: &meta.Metadata_Resource{Resource: &meta.Resource{Group: "policy.linkerd.io", Kind: kind, Name: name, Namespace: "ns"}}}
	}
	authz := &pb.Authz{
		Networks: []*pb.Network{{Net: &netpb.IPNetwork{Ip: &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv4{}}}}}, Metadata: ref("AuthorizationPolicy", "friends"),
		Authentication: &pb.Authn{Permit: &pb.Authn_MeshTLS{MeshTLS: &pb.Authn_PermitMeshTLS{
			Clients: &pb.Authn_PermitMeshTLS_Identities{Identities: &pb.Authn_PermitMeshTLS_PermitClientIdentities{Identities: []*pb.Identity{{Name: c.friend}}}},
		}}},
	}
	detect := &pb.ProxyProtocol_Detect{
		Timeout: durationpb.New(10 * time.Second),
		HttpRoutes: []*pb.HttpRoute{{
			Metadata: ref("HTTPRoute", "ok"), Authorizations: []*pb.Authz{authz},
			Rules: []*pb.HttpRoute_Rule{{Matches: []*httproute.HttpRouteMatch{{Path: &httproute.PathMatch{Kind: &httproute.PathMatch_Prefix{Prefix: "/ok"}}}}}},
		}, {
			Metadata: ref("HTTPRoute", "admin"), Authorizations: []*pb.Authz{authz},
			Rules: []*pb.HttpRoute_Rule{{Matches: []*httproute.HttpRouteMatch{{Path: &httproute.PathMatch{Kind: &httproute.PathMatch_Exact{Exact: "/metrics"}}}}}},
		}},
	}
	server := &pb.Server{
		Protocol:       &pb.ProxyProtocol{Kind: &pb.ProxyProtocol_Detect_{Detect: detect}},
		Authorizations: []*pb.Authz{authz},
		Labels:         map[string]string{"group": "policy.linkerd.io", "kind": "server", "name": "web"},
	}
	if err := out.Send(server); err != nil {
		return err
	}
	select {
	case <-c.strict:
		detect.HttpLocalRateLimit = &pb.HttpLocalRateLimit{Metadata: ref("HTTPLocalRateLimitPolicy", "often"), Identity: &pb.HttpLocalRateLimit_Limit{RequestsPerSecond: 1}}
		if err := out.Send(server); err != nil {
			return err
		}
	case <-out.Context().Done():
	}
	<-out.Context().Done()
	return nil
}

// underTraffic starts two proxies and more, and gives what they say after all
// kinds of traffic.
func underTraffic(t *testing.T) []map[string]*dto.MetricFamily {
	t.Helper()
	ca := identitytest.New(t)
	var flaky atomic.Int64
	app := listen(t, host(1))
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{Protocols: p, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.HasPrefix(r.URL.Path, "/ok/grpc"):
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = w.Write(body)
			w.Header().Set("Grpc-Status", "0")
		case r.URL.Path == "/ok/fails", r.URL.Path == "/ok/flaky" && flaky.Add(1) == 1:
			w.WriteHeader(503)
		default:
			_, _ = w.Write(append([]byte("hello "), body...))
		}
	})}
	go func() { _ = srv.Serve(app) }()
	t.Cleanup(func() { _ = srv.Close() })

	cp := &town{plane: plane{friend: clientName}, strict: make(chan struct{})}
	l := listen(t, "127.0.0.1")
	control := grpc.NewServer()
	destination.RegisterDestinationServer(control, cp)
	pb.RegisterInboundServerPoliciesServer(control, cp)
	outbound.RegisterOutboundPoliciesServer(control, roads{})
	go func() { _ = control.Serve(l) }()
	t.Cleanup(control.Stop)
	at := l.Addr().String()
	server := start(t, ca, serverName, host(1), at)
	cp.ep.Store(endpointAt(app.Addr().(*net.TCPAddr).AddrPort(), server.inbound.Port()))
	client := start(t, ca, clientName, host(2), at, "LINKERD2_PROXY_OUTBOUND_METRICS_HOSTNAME_LABELS=true", "LINKERD2_PROXY_OUTBOUND_HTTP_FAILFAST_TIMEOUT=1s")
	stranger := start(t, ca, "stranger.example", host(3), at)
	for _, p := range []*proxy{server, client, stranger} {
		p.ready(t)
	}

	ask := func(p *proxy, method, at string, body string, headers ...string) int {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+at, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		c := p.client()
		if len(headers) > 0 { // gRPC
			req.Header.Set("Content-Type", headers[0])
			c = h2Client(p)
		}
		res, err := c.Do(req)
		if err != nil {
			t.Logf("%s %s: %v", method, at, err)
			return 0
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode
	}
	const web = "web.ns.svc.cluster.local"
	eventually(t, "a first answer", func() bool { return ask(client, "POST", web+"/ok", "body") == 200 })
	for _, path := range []string{"/ok/fails", "/ok/flaky", "/nowhere"} {
		ask(client, "GET", web+path, "")
	}
	ask(stranger, "GET", web+"/ok", "")
	ask(client, "GET", "profile.ns.svc.cluster.local/ok", "")
	ask(client, "GET", "empty.ns.svc.cluster.local/ok", "")
	for _, name := range []string{web, "grpc.ns.svc.cluster.local"} {
		if code := ask(client, "POST", name+"/ok/grpc.Service/Method", "a message", "application/grpc"); code != 200 {
			t.Errorf("gRPC of %s: %d", name, code)
		}
	}
	for _, p := range []*proxy{client, stranger} {
		tunnelled(t, p, web+":80")
	}
	tunnelled(t, client, emptyName)
	// In the clear, to the port of peers.
	if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.inbound.String()); err == nil {
		_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
		_, _ = io.ReadAll(c)
		_ = c.Close()
	}
	_ = srv.Close() // and an application that has gone
	eventually(t, "the application to be missed", func() bool { return ask(client, "GET", web+"/ok", "") >= 502 })
	close(cp.strict)
	eventually(t, "a client to be told that it asks too often", func() bool { return ask(client, "GET", web+"/ok", "") == 429 })
	return []map[string]*dto.MetricFamily{scrape(t, client), scrape(t, server), scrape(t, stranger)}
}

// h2Client speaks HTTP/2 in the clear to the proxy's outbound port.
func h2Client(p *proxy) *http.Client {
	v := new(http.Protocols)
	v.SetUnencryptedHTTP2(true)
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{Protocols: v, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", p.outbound.String())
	}}}
}

// tunnelled sends bytes through CONNECT, and waits for the end.
func tunnelled(t *testing.T, p *proxy, to string) {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.outbound.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, "CONNECT "+to+" HTTP/1.1\r\nHost: "+to+"\r\n\r\n")
	_, _ = io.WriteString(c, "no request at all\n")
	_ = c.(*net.TCPConn).CloseWrite()
	_, _ = io.ReadAll(c)
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
