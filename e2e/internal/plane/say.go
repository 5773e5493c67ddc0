package plane

import (
	"encoding/binary"
	"net/netip"
	"time"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	inpb "github.com/linkerd/linkerd2-proxy-api/go/inbound"
	metapb "github.com/linkerd/linkerd2-proxy-api/go/meta"
	netpb "github.com/linkerd/linkerd2-proxy-api/go/net"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/types/known/durationpb"
)

// inboundPort is where a proxy takes a transport header.
const inboundPort = 4143

// proto is an endpoint as the destination service says it.
func (e Endpoint) proto() *destpb.WeightedAddr {
	out := &destpb.WeightedAddr{Addr: protoAddr(e.Addr), Weight: 10000}
	if e.Identity == "" {
		return out
	}
	id := &destpb.TlsIdentity_DnsLikeIdentity{Name: e.Identity}
	out.TlsIdentity = &destpb.TlsIdentity{Strategy: &destpb.TlsIdentity_DnsLikeIdentity_{DnsLikeIdentity: id}, ServerName: id}
	out.ProtocolHint = &destpb.ProtocolHint{
		Protocol:        &destpb.ProtocolHint_H2_{H2: &destpb.ProtocolHint_H2{}},
		OpaqueTransport: &destpb.ProtocolHint_OpaqueTransport{InboundPort: inboundPort},
	}
	return out
}

func protoAddr(a netip.AddrPort) *netpb.TcpAddress {
	ip := a.Addr().As4()
	return &netpb.TcpAddress{Ip: &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv4{Ipv4: binary.BigEndian.Uint32(ip[:])}}, Port: uint32(a.Port())}
}

func meta(name string) *metapb.Metadata {
	return &metapb.Metadata{Kind: &metapb.Metadata_Default{Default: name}}
}

// Balancer is a backend: the endpoints of a name.
func Balancer(name string) *outpb.Backend {
	return &outpb.Backend{
		Metadata: &metapb.Metadata{Kind: &metapb.Metadata_Resource{Resource: &metapb.Resource{Group: "core", Kind: "Service", Name: "app", Namespace: "shop", Port: 80}}},
		Queue:    &outpb.Queue{Capacity: 100, FailfastTimeout: durationpb.New(3 * time.Second)},
		Kind: &outpb.Backend_Balancer{Balancer: &outpb.Backend_BalanceP2C{
			Discovery: &outpb.Backend_EndpointDiscovery{Kind: &outpb.Backend_EndpointDiscovery_Dst{Dst: &outpb.Backend_EndpointDiscovery_DestinationGet{Path: name}}},
			Load:      &outpb.Backend_BalanceP2C_PeakEwma_{PeakEwma: &outpb.Backend_BalanceP2C_PeakEwma{DefaultRtt: durationpb.New(30 * time.Millisecond), Decay: durationpb.New(10 * time.Second)}},
		}},
	}
}

// Rule sends requests to a backend.
func Rule(to *outpb.Backend) *outpb.HttpRoute_Rule {
	return &outpb.HttpRoute_Rule{Backends: &outpb.HttpRoute_Distribution{Kind: &outpb.HttpRoute_Distribution_FirstAvailable_{
		FirstAvailable: &outpb.HttpRoute_Distribution_FirstAvailable{Backends: []*outpb.HttpRoute_RouteBackend{{Backend: to}}},
	}}}
}

// Policy is the usual one of a name: HTTP is detected, all goes to its endpoints.
// rule may be nil.
func Policy(name string, rule *outpb.HttpRoute_Rule) *outpb.OutboundPolicy {
	if rule == nil {
		rule = Rule(Balancer(name))
	}
	routes := []*outpb.HttpRoute{{Metadata: meta("http"), Rules: []*outpb.HttpRoute_Rule{rule}}}
	return &outpb.OutboundPolicy{Metadata: meta("app"), Protocol: &outpb.ProxyProtocol{Kind: &outpb.ProxyProtocol_Detect_{Detect: &outpb.ProxyProtocol_Detect{
		Timeout: durationpb.New(10 * time.Second), Opaque: opaque(name),
		Http1: &outpb.ProxyProtocol_Http1{Routes: routes}, Http2: &outpb.ProxyProtocol_Http2{Routes: routes},
	}}}}
}

// Opaque is the policy of a name whose bytes nobody looks at.
func Opaque(name string) *outpb.OutboundPolicy {
	return &outpb.OutboundPolicy{Metadata: meta("app"), Protocol: &outpb.ProxyProtocol{Kind: &outpb.ProxyProtocol_Opaque_{Opaque: opaque(name)}}}
}

func opaque(name string) *outpb.ProxyProtocol_Opaque {
	return &outpb.ProxyProtocol_Opaque{Routes: []*outpb.OpaqueRoute{{Metadata: meta("opaque"), Rules: []*outpb.OpaqueRoute_Rule{{
		Backends: &outpb.OpaqueRoute_Distribution{Kind: &outpb.OpaqueRoute_Distribution_FirstAvailable_{
			FirstAvailable: &outpb.OpaqueRoute_Distribution_FirstAvailable{Backends: []*outpb.OpaqueRoute_RouteBackend{{Backend: Balancer(name)}}},
		}},
	}}}}}
}

// Open lets everybody in. labels tell one such policy from another.
func Open(labels ...string) *inpb.Server {
	name := "all"
	if len(labels) > 0 {
		name = labels[0]
	}
	every := []*inpb.Network{
		{Net: &netpb.IPNetwork{Ip: &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv4{}}}},
		{Net: &netpb.IPNetwork{Ip: &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv6{Ipv6: &netpb.IPv6{}}}}},
	}
	return &inpb.Server{
		Protocol: &inpb.ProxyProtocol{Kind: &inpb.ProxyProtocol_Detect_{Detect: &inpb.ProxyProtocol_Detect{Timeout: durationpb.New(10 * time.Second)}}},
		Authorizations: []*inpb.Authz{{
			Networks: every, Metadata: meta(name),
			Authentication: &inpb.Authn{Permit: &inpb.Authn_Unauthenticated{Unauthenticated: &inpb.Authn_PermitUnauthenticated{}}},
		}},
		Labels: map[string]string{"name": name},
	}
}
