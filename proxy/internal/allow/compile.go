package allow

import (
	"errors"
	"fmt"
	"strings"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"

	"github.com/weftmesh/weft/proxy/internal/address"
)

// Compile reads the control plane's message. A message it cannot read gives a
// policy that refuses everything, together with the reason; it is never nil.
// timeout is the detection timeout of that policy.
func Compile(s *pb.Server, timeout time.Duration) (*Policy, error) {
	p, err := compile(s)
	if err != nil {
		return broken(timeout), fmt.Errorf("reading a server policy: %w", err)
	}
	return p, nil
}

func compile(s *pb.Server) (*Policy, error) {
	authz, err := authorizations(s.GetAuthorizations(), []authorization{localhost()})
	if err != nil {
		return nil, err
	}
	p := &Policy{Server: labelRef(s.GetLabels(), "server")}
	var rate *pb.HttpLocalRateLimit
	switch kind := s.GetProtocol().GetKind().(type) {
	case *pb.ProxyProtocol_Detect_:
		if kind.Detect.GetTimeout() == nil || !kind.Detect.GetTimeout().IsValid() {
			return nil, errors.New("no valid detection timeout")
		}
		p.Protocol, p.Timeout, p.tcp = Detect, kind.Detect.GetTimeout().AsDuration(), authz
		p.routes, err = httpRoutes(kind.Detect.GetHttpRoutes(), authz)
		rate = kind.Detect.GetHttpLocalRateLimit()
	case *pb.ProxyProtocol_Http1_:
		p.Protocol = HTTP1
		p.routes, err = httpRoutes(kind.Http1.GetRoutes(), authz)
		rate = kind.Http1.GetLocalRateLimit()
	case *pb.ProxyProtocol_Http2_:
		p.Protocol = HTTP2
		p.routes, err = httpRoutes(kind.Http2.GetRoutes(), authz)
		rate = kind.Http2.GetLocalRateLimit()
	case *pb.ProxyProtocol_Grpc_:
		p.Protocol = GRPC
		p.routes, err = grpcRoutes(kind.Grpc.GetRoutes(), authz)
	case *pb.ProxyProtocol_Opaque_:
		p.Protocol, p.tcp = Opaque, authz
	case *pb.ProxyProtocol_Tls_:
		p.Protocol, p.tcp = TLS, authz
	default:
		return nil, errors.New("no protocol")
	}
	if err != nil {
		return nil, err
	}
	if p.Limits, err = limits(rate); err != nil {
		return nil, err
	}
	if p.routes == nil {
		// Connections that were HTTP before the port became opaque go on as HTTP.
		p.routes = []route{defaultRoute(authz)}
	}
	return p, nil
}

// authorizations come before what they extend.
func authorizations(in []*pb.Authz, more []authorization) ([]authorization, error) {
	out := make([]authorization, 0, len(in)+len(more))
	for _, a := range in {
		c, err := compileAuthz(a)
		if err != nil {
			return nil, fmt.Errorf("authorization %s: %w", c.ref.Name, err)
		}
		out = append(out, c)
	}
	return append(out, more...), nil
}

func compileAuthz(a *pb.Authz) (authorization, error) {
	var out authorization
	if m := a.GetMetadata(); m != nil {
		ref, err := metaRef(m)
		if err != nil {
			return out, err
		}
		out.ref = ref
	} else {
		out.ref = labelRef(a.GetLabels(), "serverauthorization")
	}
	if len(a.GetNetworks()) == 0 {
		return out, errors.New("no networks")
	}
	for _, n := range a.GetNetworks() {
		p, err := address.Network(n.GetNet().GetIp(), n.GetNet().GetPrefixLen())
		if err != nil {
			return out, err
		}
		c := network{net: p}
		for _, e := range n.GetExcept() {
			x, err := address.Network(e.GetIp(), e.GetPrefixLen())
			if err != nil {
				return out, err
			}
			c.except = append(c.except, x)
		}
		out.networks = append(out.networks, c)
	}
	switch permit := a.GetAuthentication().GetPermit().(type) {
	case *pb.Authn_Unauthenticated:
		out.authn = anyone
	case *pb.Authn_MeshTLS:
		switch clients := permit.MeshTLS.GetClients().(type) {
		case *pb.Authn_PermitMeshTLS_Unauthenticated:
			out.authn = anyTLS
		case *pb.Authn_PermitMeshTLS_Identities:
			out.authn = identified
			for _, id := range clients.Identities.GetIdentities() {
				out.identities = append(out.identities, id.GetName())
			}
			for _, s := range clients.Identities.GetSuffixes() {
				out.suffixes = append(out.suffixes, suffix(s.GetParts()))
			}
		default:
			return out, errors.New("mesh TLS without clients")
		}
	default:
		return out, errors.New("no authentication")
	}
	return out, nil
}

// suffix makes ".a.b" of its parts. Parts that are all empty would make a suffix
// of dots, which no identity has.
func suffix(parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	return "." + strings.Join(parts, ".")
}

// labelRef reads the labels by which policies were named before there was
// metadata. An old form of the name is "default:all-unauthenticated".
func labelRef(labels map[string]string, kind string) Ref {
	name := labels["name"]
	if short, ok := strings.CutPrefix(name, "default:"); ok {
		return Ref{Kind: "default", Name: short}
	}
	ref := Ref{Group: labels["group"], Kind: labels["kind"], Name: name}
	if ref.Kind == "" {
		ref.Kind = kind
	}
	if ref.Group == "" && ref.Kind != "default" {
		ref.Group = "policy.linkerd.io"
	}
	return ref
}

func metaRef(m *meta.Metadata) (Ref, error) {
	switch kind := m.GetKind().(type) {
	case *meta.Metadata_Default:
		return Ref{Kind: "default", Name: kind.Default}, nil
	case *meta.Metadata_Resource:
		r := kind.Resource
		if r.GetKind() == "" || r.GetName() == "" {
			return Ref{}, errors.New("metadata without a kind or a name")
		}
		return Ref{Group: r.GetGroup(), Kind: r.GetKind(), Name: r.GetName()}, nil
	}
	return Ref{}, errors.New("metadata without a kind")
}
