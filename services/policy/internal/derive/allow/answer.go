package allow

import (
	"slices"
	"strings"
	"time"

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
func (in Input) server(port uint16) *server {
	if in.Policies == nil {
		return nil
	}
	l := labels{own: in.Workload.Labels, shared: in.Template.Labels}
	for _, s := range in.Policies.servers {
		selector := s.row.GetPods()
		if in.external() {
			selector = s.row.GetExternalWorkloads()
		}
		if in.selects(s.row, port) && matches(selector, l) {
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
func declared(c derive.Cluster, in Input, s *server, port uint16) *inbound.Server {
	out := &inbound.Server{
		Labels:         labelsOf(groupPolicy, "server", s.row.GetName()),
		Authorizations: s.authorizations(c),
	}
	http := func() []*inbound.HttpRoute {
		if len(s.http) > 0 {
			return s.http // as soon as there is one, the default and probe routes are gone
		}
		return defaultRoutes(c, in, port)
	}
	kind := &inbound.ProxyProtocol{}
	switch strings.ToLower(s.row.GetProxyProtocol()) {
	case "http/1":
		kind.Kind = &inbound.ProxyProtocol_Http1_{Http1: &inbound.ProxyProtocol_Http1{Routes: http(), LocalRateLimit: s.limit}}
	case "http/2":
		kind.Kind = &inbound.ProxyProtocol_Http2_{Http2: &inbound.ProxyProtocol_Http2{Routes: http(), LocalRateLimit: s.limit}}
	case "grpc":
		routes := s.grpc
		if len(routes) == 0 {
			routes = defaultGRPCRoutes(c, in, port)
		}
		kind.Kind = &inbound.ProxyProtocol_Grpc_{Grpc: &inbound.ProxyProtocol_Grpc{Routes: routes}}
	case "opaque":
		kind.Kind = opaque()
	case "tls":
		kind.Kind = &inbound.ProxyProtocol_Tls_{Tls: &inbound.ProxyProtocol_Tls{}}
	default:
		// A protocol from the future must not make the Server disappear: what it
		// denies stays denied, and detection copes with any protocol.
		kind.Kind = detect(http(), s.limit)
	}
	out.Protocol = kind
	return out
}

// authorizations are what a Server's grants and its access policy allow. An
// access policy that cannot be read denies, like one that is not set.
func (s *server) authorizations(c derive.Cluster) []*inbound.Authz {
	out := make([]*inbound.Authz, 0, len(s.grants)+1)
	for _, g := range s.grants {
		out = append(out, g.authz)
	}
	if p, err := derive.ParseDefaultPolicy(s.row.GetAccessPolicy()); err == nil {
		out = append(out, defaultAuthz(c, p)...)
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
		Protocol:       &inbound.ProxyProtocol{Kind: detect(defaultRoutes(c, in, port), nil)},
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

func detect(routes []*inbound.HttpRoute, limit *inbound.HttpLocalRateLimit) *inbound.ProxyProtocol_Detect_ {
	return &inbound.ProxyProtocol_Detect_{Detect: &inbound.ProxyProtocol_Detect{
		Timeout:            durationpb.New(detectTimeout),
		HttpRoutes:         routes,
		HttpLocalRateLimit: limit,
	}}
}

func opaque() *inbound.ProxyProtocol_Opaque_ {
	return &inbound.ProxyProtocol_Opaque_{Opaque: &inbound.ProxyProtocol_Opaque{}}
}
