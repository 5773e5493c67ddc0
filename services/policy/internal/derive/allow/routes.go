package allow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/http_types"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"

	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// routes gives a Server the routes that it has accepted, in their order. One
// that cannot be converted is left out and named.
func (p *Policies) routes(s *server, accepted []*route.Route) {
	seen := map[*route.Route]bool{}
	for _, r := range accepted {
		if seen[r] {
			continue // it names the Server twice
		}
		seen[r] = true
		var err error
		switch r.Kind {
		case route.HTTP:
			var out *inbound.HttpRoute
			if out, err = p.httpRoute(r); err == nil {
				s.http = append(s.http, out)
			}
		case route.GRPC:
			var out *inbound.GrpcRoute
			if out, err = p.grpcRoute(r); err == nil {
				s.grpc = append(s.grpc, out)
			}
		}
		if err != nil {
			p.Problems = append(p.Problems, fmt.Sprintf("%v is left out: %v", r, err))
		}
	}
}

func (p *Policies) httpRoute(r *route.Route) (*inbound.HttpRoute, error) {
	out := &inbound.HttpRoute{Metadata: routeResource(r), Authorizations: p.ofRoute(r)}
	var err error
	if out.Hosts, err = route.Hosts(r.Row); err != nil {
		return nil, err //nolint:wrapcheck // it names the field
	}
	for i, row := range r.Row.GetRules() {
		field := fmt.Sprintf("spec.rules[%d]", i)
		rule := &inbound.HttpRoute_Rule{}
		if rule.Matches, err = route.HTTPMatches(field, row); err != nil {
			return nil, err //nolint:wrapcheck // it names the field
		}
		filters, err := route.InboundFilters(r.Kind, field, row)
		if err != nil {
			return nil, err //nolint:wrapcheck // it names the field
		}
		for _, f := range filters {
			filter := &inbound.HttpRoute_Filter{Kind: &inbound.HttpRoute_Filter_RequestHeaderModifier{RequestHeaderModifier: f.Headers}}
			if f.Redirect != nil {
				filter.Kind = &inbound.HttpRoute_Filter_Redirect{Redirect: f.Redirect}
			}
			rule.Filters = append(rule.Filters, filter)
		}
		out.Rules = append(out.Rules, rule)
	}
	return out, nil
}

func (p *Policies) grpcRoute(r *route.Route) (*inbound.GrpcRoute, error) {
	out := &inbound.GrpcRoute{Metadata: routeResource(r), Authorizations: p.ofRoute(r)}
	var err error
	if out.Hosts, err = route.Hosts(r.Row); err != nil {
		return nil, err //nolint:wrapcheck // it names the field
	}
	for i, row := range r.Row.GetRules() {
		field := fmt.Sprintf("spec.rules[%d]", i)
		rule := &inbound.GrpcRoute_Rule{}
		if rule.Matches, err = route.GRPCMatches(field, row); err != nil {
			return nil, err //nolint:wrapcheck // it names the field
		}
		filters, err := route.InboundFilters(r.Kind, field, row)
		if err != nil {
			return nil, err //nolint:wrapcheck // it names the field
		}
		for _, f := range filters {
			rule.Filters = append(rule.Filters, &inbound.GrpcRoute_Filter{
				Kind: &inbound.GrpcRoute_Filter_RequestHeaderModifier{RequestHeaderModifier: f.Headers},
			})
		}
		out.Rules = append(out.Rules, rule)
	}
	return out, nil
}

// ofRoute are the authorizations of one route alone; the Server's hold besides.
func (p *Policies) ofRoute(r *route.Route) []*inbound.Authz {
	grants := p.byRoute[routeRef{strings.ToLower(r.Row.GetGroup()), strings.ToLower(r.Row.GetKind()), r.Row.GetName()}]
	sortGrants(grants)
	var out []*inbound.Authz
	for _, g := range grants {
		out = append(out, g.authz)
	}
	return out
}

// routeResource names a route; the inbound API leaves its namespace out, which
// is the workload's.
func routeResource(r *route.Route) *meta.Metadata {
	return &meta.Metadata{Kind: &meta.Metadata_Resource{Resource: &meta.Resource{
		Group: r.Row.GetGroup(), Kind: r.Row.GetKind(), Name: r.Row.GetName(),
	}}}
}

// defaultRoutes are the default route and, for a pod with probes on this port,
// the route that lets the kubelet in.
func defaultRoutes(c derive.Cluster, in Input, port uint16) []*inbound.HttpRoute {
	routes := []*inbound.HttpRoute{{
		Metadata: byDefault("default"),
		Rules: []*inbound.HttpRoute_Rule{{Matches: []*http_route.HttpRouteMatch{{
			Path: &http_route.PathMatch{Kind: &http_route.PathMatch_Prefix{Prefix: "/"}},
		}}}},
	}}
	probes := in.probes(c, port)
	if len(probes) == 0 {
		return routes
	}
	rule := &inbound.HttpRoute_Rule{}
	for _, p := range probes {
		method := http_types.HttpMethod_GET
		if p.grpc {
			method = http_types.HttpMethod_POST
		}
		rule.Matches = append(rule.Matches, &http_route.HttpRouteMatch{
			Path:   &http_route.PathMatch{Kind: &http_route.PathMatch_Exact{Exact: p.path}},
			Method: &http_types.HttpMethod{Type: &http_types.HttpMethod_Registered_{Registered: method}},
		})
	}
	return append(routes, &inbound.HttpRoute{
		Metadata:       byDefault("probe"),
		Authorizations: probeAuthz(c),
		Rules:          []*inbound.HttpRoute_Rule{rule},
	})
}

// defaultGRPCRoutes are the same for a gRPC Server: every method, and the one
// that the kubelet calls.
func defaultGRPCRoutes(c derive.Cluster, in Input, port uint16) []*inbound.GrpcRoute {
	routes := []*inbound.GrpcRoute{{
		Metadata: byDefault("default"),
		Rules: []*inbound.GrpcRoute_Rule{{
			Matches: []*grpc_route.GrpcRouteMatch{{Rpc: &grpc_route.GrpcRpcMatch{}}},
		}},
	}}
	if !slices.ContainsFunc(in.probes(c, port), func(p probe) bool { return p.grpc }) {
		return routes
	}
	service, method, _ := strings.Cut(strings.TrimPrefix(healthCheck, "/"), "/")
	return append(routes, &inbound.GrpcRoute{
		Metadata:       byDefault("probe"),
		Authorizations: probeAuthz(c),
		Rules: []*inbound.GrpcRoute_Rule{{
			Matches: []*grpc_route.GrpcRouteMatch{{Rpc: &grpc_route.GrpcRpcMatch{Service: service, Method: method}}},
		}},
	})
}

// probes are those of a port that must get in by themselves.
func (in Input) probes(c derive.Cluster, port uint16) []probe {
	if in.external() || len(c.ProbeNetworks) == 0 {
		return nil
	}
	return in.Template.probes[port]
}

func probeAuthz(c derive.Cluster) []*inbound.Authz {
	return []*inbound.Authz{{
		Labels:         labelsOf("", "default", "probe"),
		Metadata:       byDefault("probe"),
		Networks:       plainNetworks(c.ProbeNetworks),
		Authentication: anybody(),
	}}
}
