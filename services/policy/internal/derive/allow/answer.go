package allow

import (
	"slices"
	"strings"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/http_types"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"google.golang.org/protobuf/types/known/durationpb"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// detectTimeout is how long a proxy waits for a client's first bytes before it
// treats the connection as opaque. Source: spec/destination-policy.md §7.
const detectTimeout = 10 * time.Second

// Input is everything that an answer depends on.
type Input struct {
	Workload *Workload
	Template *Template
	// Policies of the workload's namespace; nil if it has none.
	Policies *Policies
}

// Answer is the complete policy of one port. What it returns shares parts with
// other answers and must not be changed.
func Answer(c derive.Cluster, in Input, port uint16) *inbound.Server {
	if server := in.server(port); server != nil {
		return declared(c, in, server, port)
	}
	return undeclared(c, in, port)
}

// server selects the Server of a port: the oldest of those that match.
func (in Input) server(port uint16) *busv1.Server {
	if in.Policies == nil {
		return nil
	}
	l := labels{own: in.Workload.Labels, shared: in.Template.Labels}
	for _, s := range in.Policies.servers {
		selector := s.GetPods()
		if in.external() {
			selector = s.GetExternalWorkloads()
		}
		if in.selects(s, port) && matches(selector, l) {
			return s
		}
	}
	return nil
}

// selects compares the port. A name may stand for several ports of a pod.
func (in Input) selects(s *busv1.Server, port uint16) bool {
	if s.GetPort() != 0 {
		return s.GetPort() == uint32(port)
	}
	return slices.Contains(in.Template.names[s.GetPortName()], port)
}

func (in Input) external() bool { return in.Workload.Kind == busv1.Workload_KIND_EXTERNAL }

// declared answers for a port that a Server selects.
func declared(c derive.Cluster, in Input, s *busv1.Server, port uint16) *inbound.Server {
	out := &inbound.Server{Labels: labelsOf(groupPolicy, "server", s.GetName())}
	out.Authorizations = in.Policies.granted(s.GetName())
	// An access policy that cannot be read denies, like one that is not set.
	if p, err := derive.ParseDefaultPolicy(s.GetAccessPolicy()); err == nil {
		out.Authorizations = append(out.Authorizations, defaultAuthz(c, p)...)
	}
	kind := &inbound.ProxyProtocol{}
	switch strings.ToLower(s.GetProxyProtocol()) {
	case "http/1":
		kind.Kind = &inbound.ProxyProtocol_Http1_{Http1: &inbound.ProxyProtocol_Http1{Routes: httpRoutes(c, in, port)}}
	case "http/2":
		kind.Kind = &inbound.ProxyProtocol_Http2_{Http2: &inbound.ProxyProtocol_Http2{Routes: httpRoutes(c, in, port)}}
	case "grpc":
		kind.Kind = &inbound.ProxyProtocol_Grpc_{Grpc: &inbound.ProxyProtocol_Grpc{Routes: grpcRoutes()}}
	case "opaque":
		kind.Kind = opaque()
	case "tls":
		kind.Kind = &inbound.ProxyProtocol_Tls_{Tls: &inbound.ProxyProtocol_Tls{}}
	default:
		// A protocol from the future must not make the Server disappear: what it
		// denies stays denied, and detection copes with any protocol.
		kind.Kind = detect(c, in, port)
	}
	out.Protocol = kind
	return out
}

// granted are the authorizations of a Server, in order of their policies' names.
func (p *Policies) granted(server string) []*inbound.Authz {
	own, shared := p.byServer[server], p.everywhere
	out := make([]*inbound.Authz, 0, len(own)+len(shared)+1)
	for len(own) > 0 || len(shared) > 0 {
		if len(shared) == 0 || len(own) > 0 && own[0].policy < shared[0].policy {
			out, own = append(out, own[0].authz), own[1:]
			continue
		}
		out, shared = append(out, shared[0].authz), shared[1:]
	}
	return out
}

// undeclared answers for a port that no Server selects.
func undeclared(c derive.Cluster, in Input, port uint16) *inbound.Server {
	policy := c.DefaultPolicy
	if in.Template.Default != "" {
		policy = in.Template.Default
	}
	if in.Template.Identity.Contains(port) {
		policy = policy.Authenticated()
	}
	out := &inbound.Server{
		Labels:         labelsOf("", "default", string(policy)),
		Authorizations: defaultAuthz(c, policy),
		Protocol:       &inbound.ProxyProtocol{Kind: detect(c, in, port)},
	}
	if in.Template.Opaque.Contains(port) {
		out.Protocol = &inbound.ProxyProtocol{Kind: opaque()}
	}
	return out
}

// defaultAuthz is what a policy allows without any object saying so.
func defaultAuthz(c derive.Cluster, p derive.DefaultPolicy) []*inbound.Authz {
	if p == derive.Deny {
		return nil
	}
	authz := &inbound.Authz{
		Labels:         labelsOf("", "default", string(p)),
		Metadata:       byDefault(string(p)),
		Networks:       plainNetworks(derive.AllNetworks()),
		Authentication: anybody(),
	}
	if p.OnlyCluster() {
		authz.Networks = plainNetworks(c.Networks)
	}
	if p.RequiresIdentity() {
		authz.Authentication = anyIdentity()
	}
	return []*inbound.Authz{authz}
}

func detect(c derive.Cluster, in Input, port uint16) *inbound.ProxyProtocol_Detect_ {
	return &inbound.ProxyProtocol_Detect_{Detect: &inbound.ProxyProtocol_Detect{
		Timeout:    durationpb.New(detectTimeout),
		HttpRoutes: httpRoutes(c, in, port),
	}}
}

func opaque() *inbound.ProxyProtocol_Opaque_ {
	return &inbound.ProxyProtocol_Opaque_{Opaque: &inbound.ProxyProtocol_Opaque{}}
}

// httpRoutes are the default route and, for a pod with probes on this port, the
// route that lets the kubelet in.
func httpRoutes(c derive.Cluster, in Input, port uint16) []*inbound.HttpRoute {
	routes := []*inbound.HttpRoute{{
		Metadata: byDefault("default"),
		Rules: []*inbound.HttpRoute_Rule{{Matches: []*http_route.HttpRouteMatch{{
			Path: &http_route.PathMatch{Kind: &http_route.PathMatch_Prefix{Prefix: "/"}},
		}}}},
	}}
	paths := in.Template.probes[port]
	if in.external() || len(paths) == 0 || len(c.ProbeNetworks) == 0 {
		return routes
	}
	rule := &inbound.HttpRoute_Rule{}
	for _, path := range paths {
		rule.Matches = append(rule.Matches, &http_route.HttpRouteMatch{
			Path: &http_route.PathMatch{Kind: &http_route.PathMatch_Exact{Exact: path}},
			Method: &http_types.HttpMethod{
				Type: &http_types.HttpMethod_Registered_{Registered: http_types.HttpMethod_GET},
			},
		})
	}
	return append(routes, &inbound.HttpRoute{
		Metadata: byDefault("probe"),
		Authorizations: []*inbound.Authz{{
			Labels:         labelsOf("", "default", "probe"),
			Metadata:       byDefault("probe"),
			Networks:       plainNetworks(c.ProbeNetworks),
			Authentication: anybody(),
		}},
		Rules: []*inbound.HttpRoute_Rule{rule},
	})
}

// grpcRoutes is the default route of a gRPC Server: every method.
func grpcRoutes() []*inbound.GrpcRoute {
	return []*inbound.GrpcRoute{{
		Metadata: byDefault("default"),
		Rules: []*inbound.GrpcRoute_Rule{{
			Matches: []*grpc_route.GrpcRouteMatch{{Rpc: &grpc_route.GrpcRpcMatch{}}},
		}},
	}}
}
