package caseset

import (
	"fmt"

	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/http_types"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
)

// Inbound says an InboundServerPolicies message.
func Inbound(s *inbound.Server) Message {
	m := Message{"labels": s.GetLabels(), "authorizations": each(s.GetAuthorizations(), authz), "rate_limit": nil}
	switch p := s.GetProtocol(); {
	case p.GetDetect() != nil:
		m["protocol"], m["timeout"] = "detect", duration(p.GetDetect().GetTimeout())
		m["routes"], m["rate_limit"] = each(p.GetDetect().GetHttpRoutes(), inboundHTTP), rateLimit(p.GetDetect().GetHttpLocalRateLimit())
	case p.GetHttp1() != nil:
		m["protocol"], m["routes"], m["rate_limit"] = "http1", each(p.GetHttp1().GetRoutes(), inboundHTTP), rateLimit(p.GetHttp1().GetLocalRateLimit())
	case p.GetHttp2() != nil:
		m["protocol"], m["routes"], m["rate_limit"] = "http2", each(p.GetHttp2().GetRoutes(), inboundHTTP), rateLimit(p.GetHttp2().GetLocalRateLimit())
	case p.GetGrpc() != nil:
		m["protocol"], m["routes"] = "grpc", each(p.GetGrpc().GetRoutes(), inboundGRPC)
	case p.GetOpaque() != nil:
		m["protocol"] = "opaque"
	case p.GetTls() != nil:
		m["protocol"] = "tls"
	}
	return plain(m)
}

func authz(a *inbound.Authz) any {
	out := map[string]any{"labels": a.GetLabels(), "networks": each(a.GetNetworks(), network)}
	switch {
	case a.GetAuthentication().GetUnauthenticated() != nil:
		out["authn"] = "unauthenticated"
	case a.GetAuthentication().GetMeshTLS().GetUnauthenticated() != nil:
		out["authn"] = "mtls-unauthenticated"
	case a.GetAuthentication().GetMeshTLS() != nil:
		clients := a.GetAuthentication().GetMeshTLS().GetIdentities()
		names, suffixes := []any{}, []any{}
		for _, id := range clients.GetIdentities() {
			names = append(names, id.GetName())
		}
		for _, s := range clients.GetSuffixes() {
			suffixes = append(suffixes, append([]string{}, s.GetParts()...))
		}
		out["authn"] = map[string]any{"mtls": map[string]any{"identities": names, "suffixes": suffixes}}
	}
	return out
}

func network(n *inbound.Network) any {
	cidr := fmt.Sprintf("%s/%d", ip(n.GetNet().GetIp()), n.GetNet().GetPrefixLen())
	if len(n.GetExcept()) == 0 {
		return cidr
	}
	except := []any{}
	for _, e := range n.GetExcept() {
		except = append(except, fmt.Sprintf("%s/%d", ip(e.GetIp()), e.GetPrefixLen()))
	}
	return map[string]any{"net": cidr, "except": except}
}

func inboundHTTP(r *inbound.HttpRoute) any {
	rules := []any{}
	for _, rule := range r.GetRules() {
		filters := []any{}
		for _, f := range rule.GetFilters() {
			filters = append(filters, filter(f.GetFailureInjector() != nil, f.GetRequestHeaderModifier(), nil, f.GetRedirect()))
		}
		rules = append(rules, map[string]any{"matches": each(rule.GetMatches(), httpMatch), "filters": filters})
	}
	return map[string]any{"meta": metaOf(r.GetMetadata()), "hosts": hosts(r.GetHosts()), "authorizations": each(r.GetAuthorizations(), authz), "rules": rules}
}

func inboundGRPC(r *inbound.GrpcRoute) any {
	rules := []any{}
	for _, rule := range r.GetRules() {
		filters := []any{}
		for _, f := range rule.GetFilters() {
			filters = append(filters, filter(f.GetFailureInjector() != nil, f.GetRequestHeaderModifier(), nil, nil))
		}
		rules = append(rules, map[string]any{"matches": each(rule.GetMatches(), grpcMatch), "filters": filters})
	}
	return map[string]any{"meta": metaOf(r.GetMetadata()), "hosts": hosts(r.GetHosts()), "authorizations": each(r.GetAuthorizations(), authz), "rules": rules}
}

func rateLimit(l *inbound.HttpLocalRateLimit) any {
	if l == nil {
		return nil
	}
	out := map[string]any{"meta": metaOf(l.GetMetadata())}
	if l.GetTotal() != nil {
		out["total"] = l.GetTotal().GetRequestsPerSecond()
	}
	if l.GetIdentity() != nil {
		out["identity"] = l.GetIdentity().GetRequestsPerSecond()
	}
	overrides := []any{}
	for _, o := range l.GetOverrides() {
		clients := []any{}
		for _, id := range o.GetClients().GetIdentities() {
			clients = append(clients, id.GetName())
		}
		overrides = append(overrides, map[string]any{"rps": o.GetLimit().GetRequestsPerSecond(), "clients": clients})
	}
	out["overrides"] = overrides
	return out
}

func httpMatch(m *http_route.HttpRouteMatch) any {
	out := map[string]any{}
	if p := m.GetPath(); p != nil {
		switch kind := p.GetKind().(type) {
		case *http_route.PathMatch_Exact:
			out["path"] = map[string]any{"exact": kind.Exact}
		case *http_route.PathMatch_Prefix:
			out["path"] = map[string]any{"prefix": kind.Prefix}
		case *http_route.PathMatch_Regex:
			out["path"] = map[string]any{"regex": kind.Regex}
		}
	}
	if m.GetMethod() != nil {
		out["method"] = method(m.GetMethod())
	}
	headers, query := []any{}, []any{}
	for _, h := range m.GetHeaders() {
		if _, exact := h.GetValue().(*http_route.HeaderMatch_Exact); exact {
			headers = append(headers, map[string]any{"name": h.GetName(), "exact": string(h.GetExact())})
		} else {
			headers = append(headers, map[string]any{"name": h.GetName(), "regex": h.GetRegex()})
		}
	}
	for _, q := range m.GetQueryParams() {
		if _, exact := q.GetValue().(*http_route.QueryParamMatch_Exact); exact {
			query = append(query, map[string]any{"name": q.GetName(), "exact": q.GetExact()})
		} else {
			query = append(query, map[string]any{"name": q.GetName(), "regex": q.GetRegex()})
		}
	}
	out["headers"], out["query"] = headers, query
	return out
}

// filter says one filter of any route; a kind that is not set is nil.
func filter(failure bool, request *http_route.RequestHeaderModifier, response *http_route.ResponseHeaderModifier, redirect *http_route.RequestRedirect) any {
	switch {
	case failure:
		return "failure"
	case request != nil:
		return map[string]any{"requestHeaderModifier": map[string]any{
			"set": headers(request.GetSet()), "add": headers(request.GetAdd()), "remove": append([]string{}, request.GetRemove()...),
		}}
	case response != nil:
		return map[string]any{"responseHeaderModifier": map[string]any{
			"set": headers(response.GetSet()), "add": headers(response.GetAdd()), "remove": append([]string{}, response.GetRemove()...),
		}}
	case redirect != nil:
		out := map[string]any{"host": redirect.GetHost(), "port": redirect.GetPort(), "status": redirect.GetStatus()}
		if s := redirect.GetScheme(); s != nil {
			out["scheme"] = map[http_types.Scheme_Registered]string{http_types.Scheme_HTTP: "http", http_types.Scheme_HTTPS: "https"}[s.GetRegistered()]
		}
		switch path := redirect.GetPath().GetReplace().(type) {
		case *http_route.PathModifier_Full:
			out["path"] = map[string]any{"full": path.Full}
		case *http_route.PathModifier_Prefix:
			out["path"] = map[string]any{"prefix": path.Prefix}
		}
		return map[string]any{"redirect": out}
	}
	return "unknown"
}

func headers(h *http_types.Headers) []any {
	out := []any{}
	for _, one := range h.GetHeaders() {
		out = append(out, []any{one.GetName(), string(one.GetValue())})
	}
	return out
}

// Outbound says an OutboundPolicies message.
func Outbound(p *outbound.OutboundPolicy) Message {
	m := Message{"meta": metaOf(p.GetMetadata()), "accrual": nil}
	var routes []any
	switch proto := p.GetProtocol(); {
	case proto.GetDetect() != nil:
		m["protocol"], m["timeout"] = "detect", duration(proto.GetDetect().GetTimeout())
		routes = each(proto.GetDetect().GetHttp1().GetRoutes(), outboundHTTP)
		m["accrual"] = accrual(proto.GetDetect().GetHttp1().GetFailureAccrual())
	case proto.GetHttp1() != nil:
		m["protocol"], m["accrual"] = "http1", accrual(proto.GetHttp1().GetFailureAccrual())
		routes = each(proto.GetHttp1().GetRoutes(), outboundHTTP)
	case proto.GetHttp2() != nil:
		m["protocol"], m["accrual"] = "http2", accrual(proto.GetHttp2().GetFailureAccrual())
		routes = each(proto.GetHttp2().GetRoutes(), outboundHTTP)
	case proto.GetGrpc() != nil:
		m["protocol"], m["accrual"] = "grpc", accrual(proto.GetGrpc().GetFailureAccrual())
		routes = each(proto.GetGrpc().GetRoutes(), outboundGRPC)
	case proto.GetOpaque() != nil:
		m["protocol"] = "opaque"
		routes = each(proto.GetOpaque().GetRoutes(), outboundOpaque)
	case proto.GetTls() != nil:
		m["protocol"] = "tls"
		routes = each(proto.GetTls().GetRoutes(), outboundTLS)
	}
	m["routes"] = routes
	m["load"] = firstLoad(routes)
	return plain(m)
}
