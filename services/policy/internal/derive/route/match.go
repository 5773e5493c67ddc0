package route

import (
	"fmt"
	"slices"
	"strings"

	"github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/http_types"
	"golang.org/x/net/http/httpguts"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// FieldError is a value that cannot be obeyed.
type FieldError struct {
	// Field is its path in the object, such as spec.rules[0].matches[1].path.
	Field string
	Why   string
}

// Error is for people: field and reason.
func (e *FieldError) Error() string { return e.Field + ": " + e.Why }

// bad names a field. What people wrote is cut, so that a message stays short.
func bad(field, format string, args ...any) error {
	for i, a := range args {
		if s, ok := a.(string); ok && len(s) > 64 {
			args[i] = s[:64] + "…"
		}
	}
	return &FieldError{Field: field, Why: fmt.Sprintf(format, args...)}
}

func at(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// Hosts are the hosts of a route, each once and in lower case, since case does
// not matter in them: a proxy would refuse the whole answer over two that differ
// in nothing else (complaint D10). Labels after a wildcard are sent in reverse.
func Hosts(row *busv1.Route) ([]*http_route.HostMatch, error) {
	var out []*http_route.HostMatch
	seen := map[string]bool{}
	for i, host := range row.GetHostnames() {
		name := strings.ToLower(strings.TrimSuffix(host, "."))
		if seen[name] {
			continue
		}
		seen[name] = true
		suffix, wild := strings.CutPrefix(name, "*.")
		labels := strings.Split(suffix, ".")
		if len(name) > 253 || slices.ContainsFunc(labels, func(l string) bool { return !derive.IsLabel(l) }) {
			return nil, bad(at("spec.hostnames", i), "%q is not a host such as web.example.com or *.example.com", host)
		}
		if !wild {
			out = append(out, &http_route.HostMatch{Match: &http_route.HostMatch_Exact{Exact: name}})
			continue
		}
		slices.Reverse(labels)
		out = append(out, &http_route.HostMatch{Match: &http_route.HostMatch_Suffix_{
			Suffix: &http_route.HostMatch_Suffix{ReverseLabels: labels},
		}})
	}
	return out, nil
}

// HTTPMatches are the matches of one rule of an HTTPRoute; field is its path.
func HTTPMatches(field string, rule *busv1.RouteRule) ([]*http_route.HttpRouteMatch, error) {
	var out []*http_route.HttpRouteMatch
	for i, m := range rule.GetMatches() {
		field := at(field+".matches", i)
		match := &http_route.HttpRouteMatch{}
		var err error
		if match.Path, err = path(field+".path", m.GetPath()); err != nil {
			return nil, err
		}
		if match.Headers, err = headers(field+".headers", m.GetHeaders()); err != nil {
			return nil, err
		}
		if match.QueryParams, err = queries(field+".queryParams", m.GetQueryParams()); err != nil {
			return nil, err
		}
		if match.Method, err = method(field+".method", m.GetMethod()); err != nil {
			return nil, err
		}
		out = append(out, match)
	}
	return out, nil
}

// GRPCMatches are the matches of one rule of a GRPCRoute; field is its path. A
// match by headers alone has an empty method: proxies refuse one without.
func GRPCMatches(field string, rule *busv1.RouteRule) ([]*grpc_route.GrpcRouteMatch, error) {
	var out []*grpc_route.GrpcRouteMatch
	for i, m := range rule.GetMatches() {
		field := at(field+".matches", i)
		match := &grpc_route.GrpcRouteMatch{Rpc: &grpc_route.GrpcRpcMatch{}}
		var err error
		if match.Headers, err = headers(field+".headers", m.GetHeaders()); err != nil {
			return nil, err
		}
		if g := m.GetGrpc(); g != nil {
			switch {
			case g.GetType() != "" && g.GetType() != "Exact":
				return nil, bad(field+".method.type", "%q is not Exact, the only kind of method match", g.GetType())
			case g.GetService() == "" && g.GetMethod() == "":
				return nil, bad(field+".method", "has neither service nor method")
			case strings.ContainsAny(g.GetService()+g.GetMethod(), "/ "):
				return nil, bad(field+".method", "a service or a method holds no slash and no space")
			}
			match.Rpc = &grpc_route.GrpcRpcMatch{Service: g.GetService(), Method: g.GetMethod()}
		}
		out = append(out, match)
	}
	return out, nil
}

func path(field string, v *busv1.TypedValue) (*http_route.PathMatch, error) {
	if v == nil {
		return nil, nil
	}
	value := v.GetValue()
	absolute := strings.HasPrefix(value, "/")
	switch kind := v.GetType(); {
	case kind == "RegularExpression":
		if err := expression(field+".value", value); err != nil {
			return nil, err
		}
		return &http_route.PathMatch{Kind: &http_route.PathMatch_Regex{Regex: value}}, nil
	case kind != "" && kind != "Exact" && kind != "PathPrefix":
		return nil, bad(field+".type", "%q is not Exact, PathPrefix or RegularExpression", kind)
	case !absolute:
		return nil, bad(field+".value", "%q does not begin with /", value)
	case kind == "Exact":
		return &http_route.PathMatch{Kind: &http_route.PathMatch_Exact{Exact: value}}, nil
	}
	return &http_route.PathMatch{Kind: &http_route.PathMatch_Prefix{Prefix: value}}, nil
}

func headers(field string, list []*busv1.TypedValue) ([]*http_route.HeaderMatch, error) {
	var out []*http_route.HeaderMatch
	for i, v := range list {
		field := at(field, i)
		if !httpguts.ValidHeaderFieldName(v.GetName()) {
			return nil, bad(field+".name", "%q is not the name of a header", v.GetName())
		}
		match := &http_route.HeaderMatch{Name: strings.ToLower(v.GetName())}
		switch v.GetType() {
		case "", "Exact":
			if !httpguts.ValidHeaderFieldValue(v.GetValue()) {
				return nil, bad(field+".value", "%q cannot be the value of a header", v.GetValue())
			}
			match.Value = &http_route.HeaderMatch_Exact{Exact: []byte(v.GetValue())}
		case "RegularExpression":
			if err := expression(field+".value", v.GetValue()); err != nil {
				return nil, err
			}
			match.Value = &http_route.HeaderMatch_Regex{Regex: v.GetValue()}
		default:
			return nil, bad(field+".type", "%q is not Exact or RegularExpression", v.GetType())
		}
		out = append(out, match)
	}
	return out, nil
}

func queries(field string, list []*busv1.TypedValue) ([]*http_route.QueryParamMatch, error) {
	var out []*http_route.QueryParamMatch
	for i, v := range list {
		field := at(field, i)
		if v.GetName() == "" {
			return nil, bad(field+".name", "is empty")
		}
		match := &http_route.QueryParamMatch{Name: v.GetName()}
		switch v.GetType() {
		case "", "Exact":
			match.Value = &http_route.QueryParamMatch_Exact{Exact: v.GetValue()}
		case "RegularExpression":
			if err := expression(field+".value", v.GetValue()); err != nil {
				return nil, err
			}
			match.Value = &http_route.QueryParamMatch_Regex{Regex: v.GetValue()}
		default:
			return nil, bad(field+".type", "%q is not Exact or RegularExpression", v.GetType())
		}
		out = append(out, match)
	}
	return out, nil
}

func method(field, name string) (*http_types.HttpMethod, error) {
	if name == "" {
		return nil, nil
	}
	if !httpguts.ValidHeaderFieldName(name) { // the same characters: a token
		return nil, bad(field, "%q is not a method", name)
	}
	if n, ok := http_types.HttpMethod_Registered_value[name]; ok {
		return &http_types.HttpMethod{Type: &http_types.HttpMethod_Registered_{Registered: http_types.HttpMethod_Registered(n)}}, nil
	}
	return &http_types.HttpMethod{Type: &http_types.HttpMethod_Unregistered{Unregistered: name}}, nil
}
