package outbound

import (
	"net/netip"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"
	"github.com/linkerd/linkerd2-proxy-api/go/opaque_route"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// detectTimeout is how long a proxy waits for a client's first bytes before it
// treats the connection as opaque. Source: spec/destination-policy.md §7.
const detectTimeout = 10 * time.Second

// Answer is the policy for a port of a Service (§9.2). A nil Service is one that
// does not exist, or not yet: names are not checked for existence (§9.1).
func Answer(c derive.Cluster, s *Service, target derive.ServicePort) *outbound.OutboundPolicy {
	if s == nil {
		s = &Service{Namespace: target.Namespace, Name: target.Name}
	}
	kind := s.protocol(target.Port)
	backend := balanced(c, s, target, kind)
	policy := &outbound.OutboundPolicy{Metadata: service(target)}
	routes := func() []*outbound.HttpRoute { return []*outbound.HttpRoute{httpRoute(c, s, backend)} }
	out := &outbound.ProxyProtocol{}
	switch kind {
	case http1:
		out.Kind = &outbound.ProxyProtocol_Http1_{Http1: &outbound.ProxyProtocol_Http1{
			Routes: routes(), FailureAccrual: breaker(s.accrual),
		}}
	case http2:
		out.Kind = &outbound.ProxyProtocol_Http2_{Http2: &outbound.ProxyProtocol_Http2{
			Routes: routes(), FailureAccrual: breaker(s.accrual),
		}}
	case opaque:
		out.Kind = &outbound.ProxyProtocol_Opaque_{Opaque: opaqueOf("opaq", backend)}
	default:
		out.Kind = &outbound.ProxyProtocol_Detect_{Detect: &outbound.ProxyProtocol_Detect{
			Timeout: durationpb.New(detectTimeout),
			Opaque:  opaqueOf("opaq", backend),
			Http1:   &outbound.ProxyProtocol_Http1{Routes: routes(), FailureAccrual: breaker(s.accrual)},
			Http2:   &outbound.ProxyProtocol_Http2{Routes: routes(), FailureAccrual: breaker(s.accrual)},
		}}
	}
	policy.Protocol = out
	return policy
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

// Fallback is the policy for an address outside the cluster: forwarded where it
// was going (§9.4).
func Fallback(dst netip.AddrPort) *outbound.OutboundPolicy {
	const name = "egress-fallback"
	backend := forwarded(name, dst)
	routes := func() []*outbound.HttpRoute {
		return []*outbound.HttpRoute{{
			Metadata: byDefault(name),
			Rules: []*outbound.HttpRoute_Rule{{
				Matches:  []*http_route.HttpRouteMatch{{}},
				Backends: httpBackend(backend),
			}},
		}}
	}
	return &outbound.OutboundPolicy{
		Metadata: byDefault(name),
		Protocol: &outbound.ProxyProtocol{Kind: &outbound.ProxyProtocol_Detect_{Detect: &outbound.ProxyProtocol_Detect{
			Timeout: durationpb.New(detectTimeout),
			Opaque:  opaqueOf(name, backend),
			Http1:   &outbound.ProxyProtocol_Http1{Routes: routes()},
			Http2:   &outbound.ProxyProtocol_Http2{Routes: routes()},
		}}},
	}
}

// httpRoute is the route of a Service without routes of its own. It carries the
// Service's retries and timeouts.
func httpRoute(c derive.Cluster, s *Service, backend *outbound.Backend) *outbound.HttpRoute {
	return &outbound.HttpRoute{
		Metadata: byDefault("http"),
		Rules: []*outbound.HttpRoute_Rule{{
			Matches: []*http_route.HttpRouteMatch{{
				Path: &http_route.PathMatch{Kind: &http_route.PathMatch_Prefix{Prefix: "/"}},
			}},
			Backends: httpBackend(backend),
			// Older proxies know only this one.
			RequestTimeout:         unlessZero(s.timeouts.request),
			Timeouts:               timeoutsOf(s.timeouts),
			Retry:                  retryOf(s.retry),
			AllowL5DRequestHeaders: c.AllowHeaders,
		}},
	}
}

func httpBackend(b *outbound.Backend) *outbound.HttpRoute_Distribution {
	return &outbound.HttpRoute_Distribution{Kind: &outbound.HttpRoute_Distribution_FirstAvailable_{
		FirstAvailable: &outbound.HttpRoute_Distribution_FirstAvailable{
			Backends: []*outbound.HttpRoute_RouteBackend{{Backend: b}},
		},
	}}
}

func opaqueOf(name string, b *outbound.Backend) *outbound.ProxyProtocol_Opaque {
	return &outbound.ProxyProtocol_Opaque{Routes: []*outbound.OpaqueRoute{{
		Metadata: byDefault(name),
		Rules: []*outbound.OpaqueRoute_Rule{{
			Backends: &outbound.OpaqueRoute_Distribution{Kind: &outbound.OpaqueRoute_Distribution_FirstAvailable_{
				FirstAvailable: &outbound.OpaqueRoute_Distribution_FirstAvailable{
					Backends: []*outbound.OpaqueRoute_RouteBackend{{Backend: b}},
				},
			}},
		}},
	}}}
}

// service names a port of a Service; the core group is written out because
// proxies refuse an empty one.
func service(t derive.ServicePort) *meta.Metadata {
	return &meta.Metadata{Kind: &meta.Metadata_Resource{Resource: &meta.Resource{
		Group: "core", Kind: "Service", Namespace: t.Namespace, Name: t.Name, Port: uint32(t.Port),
	}}}
}

func byDefault(name string) *meta.Metadata {
	return &meta.Metadata{Kind: &meta.Metadata_Default{Default: name}}
}
