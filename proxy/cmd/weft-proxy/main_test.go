package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"
	netpb "github.com/linkerd/linkerd2-proxy-api/go/net"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
)

// plane is a control plane that knows one workload, reached by any name.
type plane struct {
	destination.UnimplementedDestinationServer
	pb.UnimplementedInboundServerPoliciesServer

	endpoint *destination.WeightedAddr
	friend   string // who may talk to it
}

func (p *plane) GetProfile(_ *destination.GetDestination, out grpc.ServerStreamingServer[destination.DestinationProfile]) error {
	err := out.Send(&destination.DestinationProfile{FullyQualifiedName: "web.ns.svc.cluster.local", Endpoint: p.endpoint})
	<-out.Context().Done()
	return err
}

func (p *plane) Get(*destination.GetDestination, grpc.ServerStreamingServer[destination.Update]) error {
	return status.Error(codes.InvalidArgument, "not a service")
}

type routes struct {
	outbound.UnimplementedOutboundPoliciesServer
}

func (routes) Watch(*outbound.TrafficSpec, grpc.ServerStreamingServer[outbound.OutboundPolicy]) error {
	return status.Error(codes.NotFound, "no policy") // so the profile's endpoint is used
}

func (p *plane) WatchPort(_ *pb.PortSpec, out grpc.ServerStreamingServer[pb.Server]) error {
	err := out.Send(&pb.Server{
		Protocol: &pb.ProxyProtocol{Kind: &pb.ProxyProtocol_Detect_{Detect: &pb.ProxyProtocol_Detect{Timeout: durationpb.New(time.Second)}}},
		Authorizations: []*pb.Authz{{
			Networks: []*pb.Network{{Net: &netpb.IPNetwork{Ip: &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv4{}}}}},
			Labels:   map[string]string{"name": "friends"},
			Authentication: &pb.Authn{Permit: &pb.Authn_MeshTLS{MeshTLS: &pb.Authn_PermitMeshTLS{
				Clients: &pb.Authn_PermitMeshTLS_Identities{Identities: &pb.Authn_PermitMeshTLS_PermitClientIdentities{
					Identities: []*pb.Identity{{Name: p.friend}},
				}},
			}}},
		}},
		Labels: map[string]string{"name": "web"},
	})
	<-out.Context().Done()
	return err
}

func (p *plane) serve(t *testing.T) string {
	t.Helper()
	l := listen(t, "127.0.0.1")
	srv := grpc.NewServer()
	destination.RegisterDestinationServer(srv, p)
	pb.RegisterInboundServerPoliciesServer(srv, p)
	outbound.RegisterOutboundPoliciesServer(srv, routes{})
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(srv.Stop)
	return l.Addr().String()
}

func listen(t *testing.T, ip string) net.Listener {
	t.Helper()
	return listenAt(t, ip+":0")
}

func listenAt(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// host is a loopback address that is this process's alone: on one that others use,
// the port of a closed listener may be a connection's before it is bound again.
func host(n byte) string {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, byte(1 + pid>>8%254), byte(pid), n}).String()
}

// free are addresses, no two the same, that nothing listens on.
func free(t *testing.T, ip string, n int) []netip.AddrPort {
	t.Helper()
	var all []netip.AddrPort
	for range n {
		l := listen(t, ip)
		defer l.Close()
		all = append(all, l.Addr().(*net.TCPAddr).AddrPort())
	}
	return all
}

// proxy is a whole process, but for the process.
type proxy struct {
	inbound, outbound, admin netip.AddrPort
	stop                     context.CancelFunc
	code                     chan int
	log                      *lockedBuffer
}

func start(t *testing.T, ca *identitytest.CA, name, ip, control string, more ...string) *proxy {
	t.Helper()
	id := ca.Config(t, name)
	at := free(t, ip, 3)
	p := &proxy{inbound: at[0], outbound: at[1], admin: at[2], code: make(chan int, 1), log: new(lockedBuffer)}
	vars := map[string]string{
		"INBOUND_LISTEN_ADDR": p.inbound.String(), "OUTBOUND_LISTEN_ADDR": p.outbound.String(), "ADMIN_LISTEN_ADDR": p.admin.String(),
		"IDENTITY_SVC_ADDR": id.Svc.Addr, "DESTINATION_SVC_ADDR": control, "POLICY_SVC_ADDR": control,
		"IDENTITY_DIR": id.Dir, "IDENTITY_TRUST_ANCHORS": id.Anchors, "IDENTITY_TOKEN_FILE": id.TokenFile, "IDENTITY_LOCAL_NAME": name,
		"POLICY_WORKLOAD": name, "DESTINATION_PROFILE_SUFFIXES": ".", "DESTINATION_PROFILE_NETWORKS": "127.0.0.0/8",
		"INBOUND_IPS": ip, "INBOUND_DEFAULT_POLICY": "deny", "SHUTDOWN_GRACE_PERIOD": "10s", "SHUTDOWN_ENDPOINT_ENABLED": "true",
		// A busy machine may take longer for a handshake than a proxy waits.
		"INBOUND_CONNECT_TIMEOUT": "30s", "OUTBOUND_CONNECT_TIMEOUT": "30s",
	}
	var environ []string
	for name, value := range vars {
		environ = append(environ, "LINKERD2_PROXY_"+name+"="+value)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.stop = cancel
	done := make(chan struct{})
	go func() { defer close(done); p.code <- run(ctx, append(environ, more...), nil, p.log, p.log) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if t.Failed() {
			t.Logf("%s:\n%s", name, p.log)
		}
	})
	return p
}

func (p *proxy) admins(t *testing.T, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.admin.String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}

func (p *proxy) ready(t *testing.T) {
	t.Helper()
	eventually(t, "the proxy to be ready", func() bool { code, _ := p.admins(t, "/ready"); return code == 200 })
}

func TestTwoProxies(t *testing.T) {
	const server, client, stranger = "server.example", "client.example", "stranger.example"
	ca := identitytest.New(t)
	app := listen(t, host(1))
	go func() {
		_ = http.Serve(app, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "%s %s for %s", r.Proto, r.URL, r.Header.Get("l5d-client-id"))
		}))
	}()
	t.Cleanup(func() { _ = app.Close() })

	cp := &plane{friend: client}
	control := cp.serve(t)
	b := start(t, ca, server, host(1), control)
	at := app.Addr().(*net.TCPAddr).AddrPort()
	cp.endpoint = &destination.WeightedAddr{
		Addr: &netpb.TcpAddress{
			Ip:   &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv4{Ipv4: binary.BigEndian.Uint32(at.Addr().AsSlice())}},
			Port: uint32(at.Port()),
		},
		Weight: 1,
		TlsIdentity: &destination.TlsIdentity{Strategy: &destination.TlsIdentity_DnsLikeIdentity_{
			DnsLikeIdentity: &destination.TlsIdentity_DnsLikeIdentity{Name: server},
		}},
		ProtocolHint: &destination.ProtocolHint{
			Protocol:        &destination.ProtocolHint_H2_{H2: &destination.ProtocolHint_H2{}},
			OpaqueTransport: &destination.ProtocolHint_OpaqueTransport{InboundPort: uint32(b.inbound.Port())},
		},
	}
	a := start(t, ca, client, host(2), control)
	c := start(t, ca, stranger, host(3), control)
	for _, p := range []*proxy{a, b, c} {
		p.ready(t)
	}
	// The policy is what makes /metrics answer: the default is deny.
	eventually(t, "the policy to arrive", func() bool { code, _ := b.admins(t, "/metrics"); return code == 200 })

	get := func(p *proxy) (int, string, http.Header) {
		tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: p.outbound.String()}), DisableKeepAlives: true}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web.ns.svc.cluster.local/hello", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := tr.RoundTrip(req)
		if err != nil {
			return 0, err.Error(), nil
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body), res.Header
	}
	code, body, _ := get(a)
	if code != 200 || !strings.HasSuffix(body, "/hello for "+client) {
		t.Errorf("the friend got %d %q", code, body)
	}
	if code, body, _ := get(c); code != 403 {
		t.Errorf("the stranger got %d %q", code, body)
	}
	if _, metrics := b.admins(t, "/metrics"); !strings.Contains(metrics, `client_id="`+client) || !strings.Contains(metrics, "inbound_http_authz_deny_total") {
		t.Errorf("no trace of the requests in the metrics:\n%.2000s", metrics)
	}

	// One is stopped by its context, one by its endpoint; both end well.
	a.stop()
	res, err := http.Post("http://"+b.admin.String()+"/shutdown", "", nil)
	if err != nil || res.StatusCode != 200 {
		t.Errorf("shutdown: %v, %v", res, err)
	} else {
		_ = res.Body.Close()
	}
	for _, p := range []*proxy{a, b} {
		select {
		case code := <-p.code:
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
		case <-time.After(time.Minute):
			t.Error("the proxy did not end")
		}
	}
}

func TestExitCodes(t *testing.T) {
	var out lockedBuffer
	if code := run(t.Context(), nil, nil, &out, &out); code != 64 || !strings.Contains(out.String(), "LINKERD2_PROXY_POLICY_WORKLOAD: must be set") {
		t.Errorf("an empty environment: %d, %s", code, out.String())
	}
	if code := run(t.Context(), nil, []string{"-version"}, io.Discard, io.Discard); code != 0 {
		t.Errorf("-version: %d", code)
	}
	if code := run(t.Context(), nil, []string{"serve"}, io.Discard, io.Discard); code != 64 {
		t.Errorf("an argument: %d", code)
	}
	ca := identitytest.New(t)
	bad := start(t, ca, "me.example", host(1), "127.0.0.1:1", "LINKERD2_PROXY_LOG=loud=loud")
	if code := <-bad.code; code != 64 {
		t.Errorf("a bad log filter: %d", code)
	}
	nothing := filepath.Join(t.TempDir(), "token")
	tokenless := start(t, ca, "me.example", host(1), "127.0.0.1:1", "LINKERD2_PROXY_IDENTITY_TOKEN_FILE="+nothing)
	if code := <-tokenless.code; code != 64 || !strings.Contains(tokenless.log.String(), nothing) {
		t.Errorf("without a token: %d", code)
	}
	anchorless := start(t, ca, "me.example", host(1), "127.0.0.1:1", "LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS=none")
	if code := <-anchorless.code; code != 1 {
		t.Errorf("with trust anchors that are none: %d", code)
	}
	busy := listen(t, host(1))
	defer busy.Close()
	taken := start(t, ca, "me.example", host(1), "127.0.0.1:1", "LINKERD2_PROXY_INBOUND_LISTEN_ADDR="+busy.Addr().String())
	if code := <-taken.code; code != 1 {
		t.Errorf("a busy port: %d", code)
	}
	ca.Fail(status.Error(codes.Unavailable, "away"))
	waiting := start(t, ca, "me.example", host(1), "127.0.0.1:1")
	eventually(t, "a proxy without a certificate to be live, not ready", func() bool {
		live, _ := waiting.admins(t, "/live")
		ready, _ := waiting.admins(t, "/ready")
		return live == 200 && ready == 503
	})
	waiting.stop()
	if code := <-waiting.code; code != 0 {
		t.Errorf("stopped before its certificate: %d", code)
	}
}

func TestCores(t *testing.T) {
	for _, tt := range []struct {
		vars      string
		available int
		want      int
	}{
		{"", 8, 1},
		{"CORES=2", 8, 2},
		{"CORES=20", 8, 8},
		{"CORES_MAX_RATIO=0.5", 8, 4},
		{"CORES_MAX_RATIO=2", 8, 1},
		{"CORES_MAX=3 CORES_MAX_RATIO=1", 8, 3},
		{"CORES_MIN=2 CORES_MAX=1", 8, 2},
		{"CORES=x", 8, 1},
		{"CORES=2", 1, 1},
		{"CORES=NaN", 4, 1},
		{"CORES=2.5", 4, 1},
		{"CORES_MAX=0 CORES_MIN=-1", 4, 1},
	} {
		var environ []string
		for v := range strings.FieldsSeq(tt.vars) {
			environ = append(environ, "LINKERD2_PROXY_"+v)
		}
		if got, _ := cores(environ, tt.available); got != tt.want {
			t.Errorf("cores(%q, %d) = %d, want %d", tt.vars, tt.available, got, tt.want)
		}
	}
	_, odd := cores([]string{"LINKERD2_PROXY_CORES=x", "LINKERD2_PROXY_CORES_MAX=2", "LINKERD2_PROXY_CORES_MAX_RATIO=7"}, 4)
	if got := strings.Join(odd, ", "); got != `LINKERD2_PROXY_CORES_MAX_RATIO: "7" is ignored, LINKERD2_PROXY_CORES: "x" is ignored` {
		t.Errorf("told: %s", got)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		}
	}
}
