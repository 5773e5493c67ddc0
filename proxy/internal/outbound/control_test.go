package outbound

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	metapb "github.com/linkerd/linkerd2-proxy-api/go/meta"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
	"github.com/weftmesh/weft/proxy/internal/address"
)

// controls is a destination and a policy service whose answers a test sets.
type controls struct {
	destpb.UnimplementedDestinationServer

	mu        sync.Mutex
	endpoints map[string][]*destpb.WeightedAddr
	profiles  map[string]*destpb.DestinationProfile
	policies  map[string]*outpb.OutboundPolicy
	changed   chan struct{} // closed at a change
	cut       chan struct{} // closed to end all streams
	opened    map[string]int
	hold      chan struct{}                        // profiles are not told before it is closed; nil holds nothing
	weft      bool                                 // the policy service knows Weft's routes
	extra     map[string][]*routesv1.RuleExtension // which it then says beside the policy
}

func newControls() *controls {
	return &controls{
		endpoints: map[string][]*destpb.WeightedAddr{}, profiles: map[string]*destpb.DestinationProfile{}, policies: map[string]*outpb.OutboundPolicy{},
		changed: make(chan struct{}), cut: make(chan struct{}), opened: map[string]int{}, extra: map[string][]*routesv1.RuleExtension{},
	}
}

func (c *controls) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.changed)
	c.changed = make(chan struct{})
}

// service makes a name with a default policy and these endpoints.
func (c *controls) service(authority string, eps ...*destpb.WeightedAddr) {
	c.set(func() {
		c.endpoints[authority] = eps
		if c.policies[authority] == nil {
			c.policies[authority] = servicePolicy(authority)
		}
	})
}

// cutStreams ends every open stream, as a restarting service does.
func (c *controls) cutStreams() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.cut)
	c.cut = make(chan struct{})
}

func (c *controls) streams(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened[what]
}

func (c *controls) Get(r *destpb.GetDestination, s grpc.ServerStreamingServer[destpb.Update]) error {
	sent := map[string]*destpb.WeightedAddr{}
	first := true
	return follow(s.Context(), c, "get "+r.GetPath(), func() ([]*destpb.WeightedAddr, bool) { eps, ok := c.endpoints[r.GetPath()]; return eps, ok }, func(eps []*destpb.WeightedAddr) error {
		now := map[string]*destpb.WeightedAddr{}
		add := &destpb.WeightedAddrSet{MetricLabels: map[string]string{"service": "web"}}
		remove := &destpb.AddrSet{}
		for _, e := range eps {
			key := e.GetAddr().String()
			now[key] = e
			if first || sent[key] != e {
				add.Addrs = append(add.Addrs, e)
			}
		}
		for key, e := range sent {
			if now[key] == nil {
				remove.Addrs = append(remove.Addrs, e.GetAddr())
			}
		}
		sent, first = now, false
		if len(add.GetAddrs()) > 0 {
			if err := s.Send(&destpb.Update{Update: &destpb.Update_Add{Add: add}}); err != nil {
				return err
			}
		}
		if len(remove.GetAddrs()) > 0 {
			return s.Send(&destpb.Update{Update: &destpb.Update_Remove{Remove: remove}})
		}
		return nil
	})
}

func (c *controls) GetProfile(r *destpb.GetDestination, s grpc.ServerStreamingServer[destpb.DestinationProfile]) error {
	c.mu.Lock()
	hold := c.hold
	c.mu.Unlock()
	if hold != nil {
		c.mu.Lock()
		c.opened["profile "+r.GetPath()]++
		c.mu.Unlock()
		select {
		case <-hold:
		case <-s.Context().Done():
		}
	}
	return follow(s.Context(), c, "profile "+r.GetPath(), func() (*destpb.DestinationProfile, bool) { p, ok := c.profiles[r.GetPath()]; return p, ok }, s.Send)
}

type policyServer struct {
	outpb.UnimplementedOutboundPoliciesServer
	*controls
}

func (c policyServer) Get(context.Context, *outpb.TrafficSpec) (*outpb.OutboundPolicy, error) {
	return nil, status.Error(codes.Unimplemented, "the proxy watches")
}

func (c policyServer) Watch(r *outpb.TrafficSpec, s grpc.ServerStreamingServer[outpb.OutboundPolicy]) error {
	key := r.GetAuthority()
	if a := r.GetAddr(); a != nil {
		key = fmt.Sprintf("%s:%d", netip.AddrFrom4([4]byte{byte(a.GetIp().GetIpv4() >> 24), byte(a.GetIp().GetIpv4() >> 16), byte(a.GetIp().GetIpv4() >> 8), byte(a.GetIp().GetIpv4())}), a.GetPort())
	}
	return follow(s.Context(), c.controls, "policy "+key, func() (*outpb.OutboundPolicy, bool) { p, ok := c.policies[key]; return p, ok }, s.Send)
}

func follow[T any](ctx context.Context, c *controls, name string, get func() (T, bool), send func(T) error) error {
	c.mu.Lock()
	c.opened[name]++
	c.mu.Unlock()
	for {
		c.mu.Lock()
		value, ok := get()
		changed, cut := c.changed, c.cut
		c.mu.Unlock()
		if !ok {
			return status.Errorf(codes.NotFound, "%s not found", name)
		}
		if err := send(value); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-cut:
			return status.Error(codes.Unavailable, "going away")
		case <-ctx.Done():
			return nil
		}
	}
}

// dial serves the controls and returns a connection to them.
func (c *controls) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	lis := listenLoopback(t)
	srv := grpc.NewServer()
	destpb.RegisterDestinationServer(srv, c)
	outpb.RegisterOutboundPoliciesServer(srv, policyServer{controls: c})
	srv.RegisterService(routesDesc(c), c)
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(srv.Stop)
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func serviceMeta(name string) *metapb.Metadata {
	return &metapb.Metadata{Kind: &metapb.Metadata_Resource{Resource: &metapb.Resource{Group: "core", Kind: "Service", Name: name, Namespace: "shop", Port: 80}}}
}

func defaultMeta(name string) *metapb.Metadata {
	return &metapb.Metadata{Kind: &metapb.Metadata_Default{Default: name}}
}

func balancerOf(authority string) *outpb.Backend {
	return &outpb.Backend{
		Metadata: serviceMeta("web"), Queue: &outpb.Queue{Capacity: 100, FailfastTimeout: durationpb.New(3 * time.Second)},
		Kind: &outpb.Backend_Balancer{Balancer: &outpb.Backend_BalanceP2C{
			Discovery: &outpb.Backend_EndpointDiscovery{Kind: &outpb.Backend_EndpointDiscovery_Dst{Dst: &outpb.Backend_EndpointDiscovery_DestinationGet{Path: authority}}},
			Load:      &outpb.Backend_BalanceP2C_PeakEwma_{PeakEwma: &outpb.Backend_BalanceP2C_PeakEwma{DefaultRtt: durationpb.New(30 * time.Millisecond), Decay: durationpb.New(10 * time.Second)}},
		}},
	}
}

func httpRule(b *outpb.Backend) *outpb.HttpRoute_Rule {
	return &outpb.HttpRoute_Rule{Backends: &outpb.HttpRoute_Distribution{Kind: &outpb.HttpRoute_Distribution_FirstAvailable_{
		FirstAvailable: &outpb.HttpRoute_Distribution_FirstAvailable{Backends: []*outpb.HttpRoute_RouteBackend{{Backend: b}}},
	}}}
}

func opaqueOf(b *outpb.Backend) *outpb.ProxyProtocol_Opaque {
	return &outpb.ProxyProtocol_Opaque{Routes: []*outpb.OpaqueRoute{{Metadata: defaultMeta("opaq"), Rules: []*outpb.OpaqueRoute_Rule{{
		Backends: &outpb.OpaqueRoute_Distribution{Kind: &outpb.OpaqueRoute_Distribution_FirstAvailable_{
			FirstAvailable: &outpb.OpaqueRoute_Distribution_FirstAvailable{Backends: []*outpb.OpaqueRoute_RouteBackend{{Backend: b}}},
		}},
	}}}}}
}

func detectPolicy(b *outpb.Backend, rule *outpb.HttpRoute_Rule, accrual *outpb.FailureAccrual) *outpb.OutboundPolicy {
	routes := []*outpb.HttpRoute{{Metadata: defaultMeta("http"), Rules: []*outpb.HttpRoute_Rule{rule}}}
	return &outpb.OutboundPolicy{Metadata: serviceMeta("web"), Protocol: &outpb.ProxyProtocol{Kind: &outpb.ProxyProtocol_Detect_{Detect: &outpb.ProxyProtocol_Detect{
		Timeout: durationpb.New(10 * time.Second), Opaque: opaqueOf(b),
		Http1: &outpb.ProxyProtocol_Http1{Routes: routes, FailureAccrual: accrual}, Http2: &outpb.ProxyProtocol_Http2{Routes: routes, FailureAccrual: accrual},
	}}}}
}

func servicePolicy(authority string) *outpb.OutboundPolicy {
	b := balancerOf(authority)
	return detectPolicy(b, httpRule(b), nil)
}

func opaquePolicy(authority string) *outpb.OutboundPolicy {
	return &outpb.OutboundPolicy{Metadata: serviceMeta("web"), Protocol: &outpb.ProxyProtocol{Kind: &outpb.ProxyProtocol_Opaque_{Opaque: opaqueOf(balancerOf(authority))}}}
}

func plain(a netip.AddrPort) *destpb.WeightedAddr {
	return &destpb.WeightedAddr{Addr: address.TCP(a), Weight: 10000}
}

// hinted is an endpoint without identity whose proxy takes HTTP/2.
func hintedH2(a netip.AddrPort) *destpb.WeightedAddr {
	w := plain(a)
	w.ProtocolHint = &destpb.ProtocolHint{Protocol: &destpb.ProtocolHint_H2_{H2: &destpb.ProtocolHint_H2{}}}
	return w
}

// meshed is the endpoint as the destination service describes one in transport-header mode.
func meshed(a netip.AddrPort, id string, inbound uint16) *destpb.WeightedAddr {
	w := hintedH2(a)
	w.TlsIdentity = &destpb.TlsIdentity{
		Strategy:   &destpb.TlsIdentity_DnsLikeIdentity_{DnsLikeIdentity: &destpb.TlsIdentity_DnsLikeIdentity{Name: id}},
		ServerName: &destpb.TlsIdentity_DnsLikeIdentity{Name: id},
	}
	if inbound != 0 {
		w.ProtocolHint.OpaqueTransport = &destpb.ProtocolHint_OpaqueTransport{InboundPort: uint32(inbound)}
	}
	return w
}
