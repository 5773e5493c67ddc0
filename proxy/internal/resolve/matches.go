package resolve

import (
	"errors"
	"fmt"
	"net/http"

	grpcpb "github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	routepb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	typespb "github.com/linkerd/linkerd2-proxy-api/go/http_types"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/services/kit/pattern"
)

// hostsOf fails on a match that is not known: without it the route would take
// every host.
func hostsOf(hosts []*routepb.HostMatch) ([]HostMatch, error) {
	var out []HostMatch
	for _, h := range hosts {
		switch m := h.GetMatch().(type) {
		case *routepb.HostMatch_Exact:
			out = append(out, HostMatch{Exact: lower(m.Exact)})
		case *routepb.HostMatch_Suffix_:
			out = append(out, HostMatch{Suffix: suffixOf(m.Suffix.GetReverseLabels())})
		default:
			return nil, errors.New("a host match that is not known")
		}
	}
	return out, nil
}

func matchOf(m *routepb.HttpRouteMatch) (Match, error) {
	var out Match
	var err error
	switch p := m.GetPath().GetKind().(type) {
	case *routepb.PathMatch_Exact:
		out.PathKind, out.Path = PathExact, p.Exact
	case *routepb.PathMatch_Prefix:
		out.PathKind, out.Path = PathPrefix, p.Prefix
	case *routepb.PathMatch_Regex:
		out.PathKind = PathRegex
		if out.Regex, err = pattern.Whole(p.Regex); err != nil {
			return out, fmt.Errorf("reading a path match: %w", err)
		}
	default:
		if m.GetPath() != nil {
			return out, errMatch
		}
	}
	if m.GetMethod() != nil {
		if out.Method = methodOf(m.GetMethod()); !message.Token(out.Method) {
			return out, errMatch
		}
	}
	if out.Headers, err = headersOf(m.GetHeaders()); err != nil {
		return out, err
	}
	for _, q := range m.GetQueryParams() {
		v := Value{Name: q.GetName(), Exact: q.GetExact()}
		switch expr := q.GetValue().(type) {
		case *routepb.QueryParamMatch_Exact:
		case *routepb.QueryParamMatch_Regex:
			if v.Regex, err = pattern.Whole(expr.Regex); err != nil {
				return out, fmt.Errorf("reading a query match: %w", err)
			}
		default:
			return out, errMatch
		}
		out.Query = append(out.Query, v)
	}
	return out, nil
}

// errMatch makes the whole policy invalid: without the condition the rule would
// take what it was not written for.
var errMatch = errors.New("a match that is not known")

func grpcMatch(m *grpcpb.GrpcRouteMatch) (Match, error) {
	out := Match{Method: http.MethodPost}
	var err error
	service, method := m.GetRpc().GetService(), m.GetRpc().GetMethod()
	out.Service, out.Call = len(service), len(method)
	switch {
	case service != "" && method != "":
		out.PathKind, out.Path = PathExact, "/"+service+"/"+method
	case service != "":
		out.PathKind, out.Path = PathPrefix, "/"+service
	case method != "":
		out.PathKind = PathRegex
		if out.Regex, err = pattern.Whole("/[^/]*/" + quote(method)); err != nil {
			return out, fmt.Errorf("reading a method match: %w", err)
		}
	}
	out.Headers, err = headersOf(m.GetHeaders())
	return out, err
}

func headersOf(all []*routepb.HeaderMatch) ([]Value, error) {
	var out []Value
	for _, h := range all {
		v := Value{Name: h.GetName(), Exact: string(h.GetExact())}
		if !message.Token(v.Name) {
			return nil, fmt.Errorf("%q is no name of a header to match", v.Name)
		}
		switch expr := h.GetValue().(type) {
		case *routepb.HeaderMatch_Exact:
		case *routepb.HeaderMatch_Regex:
			var err error
			if v.Regex, err = pattern.Whole(expr.Regex); err != nil {
				return nil, fmt.Errorf("reading a header match: %w", err)
			}
		default:
			return nil, errMatch
		}
		out = append(out, v)
	}
	return out, nil
}

// methodOf is "" for what is none.
func methodOf(m *typespb.HttpMethod) string {
	switch k := m.GetType().(type) {
	case *typespb.HttpMethod_Unregistered:
		return k.Unregistered
	case *typespb.HttpMethod_Registered_:
		return typespb.HttpMethod_Registered_name[int32(k.Registered)]
	}
	return ""
}
