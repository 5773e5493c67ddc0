package allow

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	grpcpb "github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	httppb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	typepb "github.com/linkerd/linkerd2-proxy-api/go/http_types"
	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"
	metapb "github.com/linkerd/linkerd2-proxy-api/go/meta"

	"github.com/weftmesh/weft/services/kit/pattern"
)

// written is a route of either protocol, with rules of kind R.
type written[R any] interface {
	GetMetadata() *metapb.Metadata
	GetHosts() []*httppb.HostMatch
	GetAuthorizations() []*pb.Authz
	GetRules() []R
}

// ruled is a rule with matches and filters of kinds M and F.
type ruled[M, F any] interface {
	GetMatches() []M
	GetFilters() []F
}

// compiler reads the matches and filters of one protocol.
type compiler[M, F any] struct {
	match  func(M) (conditions, error)
	filter func(F) (Filter, error)
}

func httpRoutes(in []*pb.HttpRoute, server []authorization) ([]route, error) {
	return routes(in, server, compiler[*httppb.HttpRouteMatch, *pb.HttpRoute_Filter]{httpMatch, httpFilter})
}

func grpcRoutes(in []*pb.GrpcRoute, server []authorization) ([]route, error) {
	return routes(in, server, compiler[*grpcpb.GrpcRouteMatch, *pb.GrpcRoute_Filter]{grpcMatch, grpcFilter})
}

// routes compiles routes, whose authorizations extend the server's. A server
// without routes has one that takes everything.
func routes[T written[R], R ruled[M, F], M, F any](in []T, server []authorization, by compiler[M, F]) ([]route, error) {
	if len(in) == 0 {
		return []route{defaultRoute(server)}, nil
	}
	var out []route
	for _, r := range in {
		ref, err := metaRef(r.GetMetadata())
		if err != nil {
			return nil, fmt.Errorf("route: %w", err)
		}
		c, err := compileRoute(ref, r, server, by)
		if err != nil {
			return nil, fmt.Errorf("route %s: %w", ref.Name, err)
		}
		out = append(out, c)
	}
	return out, nil
}

func compileRoute[T written[R], R ruled[M, F], M, F any](ref Ref, r T, server []authorization, by compiler[M, F]) (route, error) {
	var out route
	var err error
	if out.hosts, err = hosts(r.GetHosts()); err != nil {
		return out, err
	}
	authz, err := authorizations(r.GetAuthorizations(), server)
	if err != nil {
		return out, err
	}
	for _, in := range r.GetRules() {
		c := rule{ref: ref, authz: authz}
		for _, m := range in.GetMatches() {
			cond, err := by.match(m)
			if err != nil {
				return out, err
			}
			c.matches = append(c.matches, cond)
		}
		for _, f := range in.GetFilters() {
			filter, err := by.filter(f)
			if err != nil {
				return out, err
			}
			c.filters = append(c.filters, filter)
		}
		out.rules = append(out.rules, c)
	}
	return out, nil
}

func hosts(in []*httppb.HostMatch) ([]host, error) {
	var out []host
	for _, h := range in {
		switch m := h.GetMatch().(type) {
		case *httppb.HostMatch_Exact:
			out = append(out, host{name: hostOf(m.Exact)})
		case *httppb.HostMatch_Suffix_:
			labels := slices.Clone(m.Suffix.GetReverseLabels())
			slices.Reverse(labels)
			out = append(out, host{name: "." + strings.ToLower(strings.Join(labels, ".")), suffix: true})
		default:
			return nil, errors.New("a host match without a kind")
		}
	}
	return out, nil
}

func httpMatch(m *httppb.HttpRouteMatch) (conditions, error) {
	var c conditions
	var err error
	switch p := m.GetPath().GetKind().(type) {
	case nil:
	case *httppb.PathMatch_Exact:
		c.path = path{kind: pathExact, text: p.Exact}
	case *httppb.PathMatch_Prefix:
		c.path = path{kind: pathPrefix, text: p.Prefix}
	case *httppb.PathMatch_Regex:
		c.path.kind = pathRegex
		if c.path.regex, err = pattern.Whole(p.Regex); err != nil {
			return c, err
		}
	default:
		return c, errors.New("an unknown path match")
	}
	if c.method, err = method(m.GetMethod()); err != nil {
		return c, err
	}
	if c.headers, err = headers(m.GetHeaders()); err != nil {
		return c, err
	}
	for _, q := range m.GetQueryParams() {
		v := value{name: q.GetName()}
		switch kind := q.GetValue().(type) {
		case *httppb.QueryParamMatch_Exact:
			v.exact = kind.Exact
		case *httppb.QueryParamMatch_Regex:
			if v.regex, err = pattern.Whole(kind.Regex); err != nil {
				return c, err
			}
		default:
			return c, errors.New("a query match without a value")
		}
		c.query = append(c.query, v)
	}
	return c, nil
}

func grpcMatch(m *grpcpb.GrpcRouteMatch) (conditions, error) {
	c := conditions{grpc: true}
	service, name := m.GetRpc().GetService(), m.GetRpc().GetMethod()
	switch {
	case service != "" && name != "":
		c.path = path{kind: pathExact, text: "/" + service + "/" + name}
	case service != "":
		c.path = path{kind: pathService, text: "/" + service + "/"}
	case name != "":
		c.path = path{kind: pathMethod, text: "/" + name}
	}
	var err error
	c.headers, err = headers(m.GetHeaders())
	return c, err
}

func headers(in []*httppb.HeaderMatch) ([]value, error) {
	var out []value
	for _, h := range in {
		v := value{name: h.GetName()}
		switch kind := h.GetValue().(type) {
		case *httppb.HeaderMatch_Exact:
			v.exact = string(kind.Exact)
		case *httppb.HeaderMatch_Regex:
			var err error
			if v.regex, err = pattern.Whole(kind.Regex); err != nil {
				return nil, err
			}
		default:
			return nil, errors.New("a header match without a value")
		}
		out = append(out, v)
	}
	return out, nil
}

func method(m *typepb.HttpMethod) (string, error) {
	switch t := m.GetType().(type) {
	case nil:
		return "", nil
	case *typepb.HttpMethod_Registered_:
		if name, ok := typepb.HttpMethod_Registered_name[int32(t.Registered)]; ok {
			return name, nil
		}
	case *typepb.HttpMethod_Unregistered:
		if t.Unregistered != "" {
			return t.Unregistered, nil
		}
	}
	return "", errors.New("an unknown method")
}
