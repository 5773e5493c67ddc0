package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	grpcroute "github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	httproute "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"
	netpb "github.com/linkerd/linkerd2-proxy-api/go/net"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
)

// town is a control plane with all kinds of answers.
type town struct {
	plane
	ep     atomic.Pointer[destination.WeightedAddr]
	rpc    atomic.Pointer[destination.WeightedAddr] // of what its policy says is gRPC
	port   uint32                                   // of that
	strict chan struct{}                            // closed when clients may ask no more than once a second
}

const emptyName, profileName, grpcName = "empty.ns.svc.cluster.local:80", "profile.ns.svc.cluster.local:80", "grpc.ns.svc.cluster.local:80"

func (c *town) Get(r *destination.GetDestination, out grpc.ServerStreamingServer[destination.Update]) error {
	u := &destination.Update{Update: &destination.Update_Add{Add: &destination.WeightedAddrSet{
		Addrs: []*destination.WeightedAddr{c.ep.Load()}, MetricLabels: map[string]string{"deployment": "web"},
	}}}
	if r.GetPath() == grpcName {
		u.GetAdd().Addrs[0] = c.rpc.Load()
	}
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
func (c *town) WatchPort(spec *pb.PortSpec, out grpc.ServerStreamingServer[pb.Server]) error {
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
	if spec.GetPort() == c.port {
		server.Protocol = &pb.ProxyProtocol{Kind: &pb.ProxyProtocol_Grpc_{Grpc: &pb.ProxyProtocol_Grpc{Routes: []*pb.GrpcRoute{{
			Metadata: ref("GRPCRoute", "rpc"), Authorizations: []*pb.Authz{authz}, Rules: []*pb.GrpcRoute_Rule{{Matches: []*grpcroute.GrpcRouteMatch{{}}}},
		}}}}}
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
	app, rpc := listen(t, host(1)), listen(t, host(1))
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
	go func() { _ = srv.Serve(rpc) }()
	t.Cleanup(func() { _ = srv.Close() })

	cp := &town{plane: plane{friend: clientName}, strict: make(chan struct{}), port: uint32(rpc.Addr().(*net.TCPAddr).Port)}
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
	cp.rpc.Store(endpointAt(rpc.Addr().(*net.TCPAddr).AddrPort(), server.inbound.Port()))
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
