package outbound

import (
	"net/netip"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"
	"github.com/linkerd/linkerd2-proxy-api/go/opaque_route"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/types/known/durationpb"

	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// detectTimeout is how long a proxy waits for a client's first bytes before it
// treats the connection as opaque. Source: spec/destination-policy.md §7.
const detectTimeout = 10 * time.Second

// builder makes one answer.
type builder struct {
	cluster  derive.Cluster
	parent   Parent
	settings settings
	said     protocol
	Question

	extensions []*routesv1.RuleExtension
}

// Policy is an answer.
type Policy struct {
	Policy *outbound.OutboundPolicy
	// Extensions are what Linkerd's API cannot say, if the complete answer is
	// asked for; then the policy holds no stand-ins for them.
	Extensions []*routesv1.RuleExtension
}

// Plain is an answer that Linkerd's API says completely.
func Plain(p *outbound.OutboundPolicy) Policy { return Policy{Policy: p} }

// Answer is the policy for a target (§9.2, §9.5). Of a Service that does not
// exist it is what a Service without routes and annotations has: names are not
// checked for existence (§9.1).
func Answer(c derive.Cluster, p Parent, q Question) Policy {
	b := &builder{cluster: c, parent: p, settings: p.settings(c), Question: q}
	switch {
	case p.Service != nil:
		b.said = p.Service.protocol(q.Port)
	case p.Egress != nil && b.settings.opaque.Contains(q.Port):
		b.said = opaque
	}
	policy := &outbound.OutboundPolicy{Metadata: b.metadata(), Protocol: b.protocol()}
	return Policy{Policy: policy, Extensions: b.extensions}
}

// protocol chooses how the proxy treats a connection: as the port says, else as
// the strongest kind of routes says, else it looks (§9.2).
func (b *builder) protocol() *outbound.ProxyProtocol {
	routes := b.parent.routes(b.Question)
	http, grpc, tls, tcp := routes[route.HTTP], routes[route.GRPC], routes[route.TLS], routes[route.TCP]
	breaker := breaker(b.settings.accrual)
	out := &outbound.ProxyProtocol{}
	switch {
	case b.said == http1:
		out.Kind = &outbound.ProxyProtocol_Http1_{Http1: &outbound.ProxyProtocol_Http1{
			Routes: b.http(http), FailureAccrual: breaker,
		}}
	case b.said == opaque, b.said == unsaid && len(grpc)+len(http)+len(tls) == 0 && len(tcp) > 0:
		out.Kind = &outbound.ProxyProtocol_Opaque_{Opaque: b.opaque(tcp)}
	case len(grpc) > 0: // nothing is said, or h2c
		out.Kind = &outbound.ProxyProtocol_Grpc_{Grpc: &outbound.ProxyProtocol_Grpc{
			Routes: b.grpc(grpc), FailureAccrual: breaker,
		}}
	case b.said == http2:
		out.Kind = &outbound.ProxyProtocol_Http2_{Http2: &outbound.ProxyProtocol_Http2{
			Routes: b.http(http), FailureAccrual: breaker,
		}}
	case len(http) == 0 && len(tls) > 0:
		out.Kind = &outbound.ProxyProtocol_Tls_{Tls: b.tls(tls)}
	default:
		said := b.http(http)
		out.Kind = &outbound.ProxyProtocol_Detect_{Detect: &outbound.ProxyProtocol_Detect{
			Timeout: durationpb.New(detectTimeout),
			Opaque:  b.opaque(nil),
			Http1:   &outbound.ProxyProtocol_Http1{Routes: said, FailureAccrual: breaker},
			Http2:   &outbound.ProxyProtocol_Http2{Routes: said, FailureAccrual: breaker},
		}}
	}
	return out
}

// metadata names the parent.
func (b *builder) metadata() *meta.Metadata {
	if b.parent.Egress != nil {
		return egressMeta(b.parent.Namespace, b.parent.Name, b.Port)
	}
	return service(derive.ServicePort{Namespace: b.parent.Namespace, Name: b.parent.Name, Port: b.Port})
}

// UndefinedPort is the policy for a cluster IP's port that its Service does not
// declare: the connection is refused (§9.3).
func UndefinedPort(target derive.ServicePort) *outbound.OutboundPolicy {
	return &outbound.OutboundPolicy{
		Metadata: service(target),
		Protocol: &outbound.ProxyProtocol{Kind: &outbound.ProxyProtocol_Opaque_{Opaque: &outbound.ProxyProtocol_Opaque{
			Routes: []*outbound.OpaqueRoute{{
				Metadata: byDefault("undefined-port"),
				Rules: []*outbound.OpaqueRoute_Rule{{
					Backends: &outbound.OpaqueRoute_Distribution{Kind: &outbound.OpaqueRoute_Distribution_Empty_{
						Empty: &outbound.OpaqueRoute_Distribution_Empty{},
					}},
					Filters: []*outbound.OpaqueRoute_Filter{{Kind: &outbound.OpaqueRoute_Filter_Forbidden{
						Forbidden: &opaque_route.Forbidden{},
					}}},
				}},
			}},
		}}},
	}
}

// Fallback is the policy for an address outside the cluster that no
// EgressNetwork holds: forwarded where it was going (§9.4).
func Fallback(dst netip.AddrPort) *outbound.OutboundPolicy {
	const name = "egress-fallback"
	backend := forwarded(byDefault(name), dst, 1)
	routes := []*outbound.HttpRoute{{
		Metadata: byDefault(name),
		Rules: []*outbound.HttpRoute_Rule{{
			Matches:  []*http_route.HttpRouteMatch{{}},
			Backends: httpFirst(backend),
		}},
	}}
	return &outbound.OutboundPolicy{
		Metadata: byDefault(name),
		Protocol: &outbound.ProxyProtocol{Kind: &outbound.ProxyProtocol_Detect_{Detect: &outbound.ProxyProtocol_Detect{
			Timeout: durationpb.New(detectTimeout),
			Opaque:  &outbound.ProxyProtocol_Opaque{Routes: []*outbound.OpaqueRoute{opaqueDefault(name, backend, nil)}},
			Http1:   &outbound.ProxyProtocol_Http1{Routes: routes},
			Http2:   &outbound.ProxyProtocol_Http2{Routes: routes},
		}}},
	}
}

// service names a port of a Service; the core group is written out because
// proxies refuse an empty one.
func service(t derive.ServicePort) *meta.Metadata {
	return &meta.Metadata{Kind: &meta.Metadata_Resource{Resource: &meta.Resource{
		Group: "core", Kind: "Service", Namespace: t.Namespace, Name: t.Name, Port: uint32(t.Port),
	}}}
}

// egressMeta names a port of an EgressNetwork.
func egressMeta(namespace, name string, port uint16) *meta.Metadata {
	return &meta.Metadata{Kind: &meta.Metadata_Resource{Resource: &meta.Resource{
		Group: route.GroupPolicy, Kind: "EgressNetwork", Namespace: namespace, Name: name, Port: uint32(port),
	}}}
}

func byDefault(name string) *meta.Metadata {
	return &meta.Metadata{Kind: &meta.Metadata_Default{Default: name}}
}
