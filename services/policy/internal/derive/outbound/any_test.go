package outbound_test

import (
	"math"
	"math/rand/v2"
	"testing"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
)

func cluster(t *testing.T) derive.Cluster {
	t.Helper()
	networks, err := derive.ParseNetworks([]string{"10.0.0.0/8", "fd00::/8"})
	if err != nil {
		t.Fatal(err)
	}
	return derive.Cluster{Networks: networks, Domain: "cluster.local", EgressNamespace: "linkerd-egress"}
}

func plum() *busv1.Service {
	return &busv1.Service{
		Namespace: "grove", Name: "plum", ClusterIps: []string{"10.96.0.1"},
		Ports:       []*busv1.ServicePort{{Port: 80}, {Port: 81}},
		Annotations: map[string]string{},
	}
}

func outside() *busv1.EgressNetwork {
	return &busv1.EgressNetwork{Namespace: "grove", Name: "outside", TrafficPolicy: "Deny"}
}

// annotations are those that a Service may carry, with good and bad values.
func annotations() map[string][]string {
	durations := []string{"0", "5s", "10ms", "106751d", "-1s", "x"}
	return map[string][]string{
		"balancer.linkerd.io/failure-accrual":                              {"consecutive", "unified", "x"},
		"balancer.linkerd.io/failure-accrual-consecutive-max-penalty":      durations,
		"balancer.alpha.linkerd.io/failure-accrual-success-rate-window":    durations,
		"balancer.alpha.linkerd.io/failure-accrual-success-rate-threshold": {"0", "1", "NaN"},
		"balancer.alpha.linkerd.io/penalize-failures":                      {"true", "maybe"},
		"balancer.alpha.linkerd.io/load-biaser-penalty":                    durations,
		"config.linkerd.io/opaque-ports":                                   {"80", "1-65535", "", "x"},
		"retry.linkerd.io/http":                                            {"5xx", "1", "429,gateway-error"},
		"retry.linkerd.io/grpc":                                            {"internal", "ok"},
		"retry.linkerd.io/limit":                                           {"0", "3", "65536"},
		"retry.linkerd.io/timeout":                                         durations,
		"timeout.linkerd.io/request":                                       durations,
		"timeout.linkerd.io/response":                                      durations,
		"timeout.linkerd.io/idle":                                          durations,
	}
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// anyRoute makes a route of parts that are mostly good.
func anyRoute(r *rand.Rand) *busv1.Route {
	out := &busv1.Route{
		Group:     pick(r, "gateway.networking.k8s.io", "gateway.networking.k8s.io", "policy.linkerd.io", ""),
		Kind:      pick(r, "HTTPRoute", "HTTPRoute", "HTTPRoute", "GRPCRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "x"),
		Namespace: pick(r, "grove", "grove", "market", ""),
		Name:      pick(r, "a", "b", "c", ""),
		CreatedAt: r.Int64N(3),
	}
	for key, values := range annotations() {
		if r.IntN(20) == 0 {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[key] = pick(r, values...)
		}
	}
	for range 1 + r.IntN(2) {
		out.Parents = append(out.Parents, &busv1.ParentRef{
			Group: "policy.linkerd.io", Kind: "EgressNetwork", Namespace: "grove", Name: "outside", Port: pick(r, uint32(0), 80, 99999),
		}, &busv1.ParentRef{Group: pick(r, "", "core"), Kind: "Service", Namespace: "grove", Name: "plum", Port: pick(r, uint32(0), 80, 81, 7)})
	}
	for range r.IntN(3) {
		out.Hostnames = append(out.Hostnames, pick(r, "Plum.example", "plum.example", "*.example", "*", "", "a..b", "é"))
	}
	for range r.IntN(3) {
		out.Rules = append(out.Rules, anyRule(r))
	}
	return out
}

func anyRule(r *rand.Rand) *busv1.RouteRule {
	out := &busv1.RouteRule{
		RequestTimeout:        pick(r, "", "", "", "10s", "0s", "x"),
		BackendRequestTimeout: pick(r, "", "", "", "1s", "1d"),
	}
	for range r.IntN(3) {
		out.Matches = append(out.Matches, anyMatch(r))
	}
	for range r.IntN(3) {
		out.Filters = append(out.Filters, anyFilter(r))
	}
	for range r.IntN(4) {
		out.Backends = append(out.Backends, anyBackend(r))
		for range r.IntN(2) {
			last := out.Backends[len(out.Backends)-1]
			last.Filters = append(last.Filters, anyFilter(r))
		}
	}
	if r.IntN(8) == 0 {
		out.SessionPersistence = &busv1.SessionPersistence{
			Type: pick(r, "", "Cookie", "Header", "x"), IdleTimeout: pick(r, "", "1h", "x"), CookieLifetime: pick(r, "", "Session", "Permanent"),
		}
	}
	return out
}

func anyMatch(r *rand.Rand) *busv1.RouteMatch {
	value := func() *busv1.TypedValue {
		return &busv1.TypedValue{
			Type: pick(r, "Exact", "Exact", "RegularExpression", "PathPrefix", ""), Name: pick(r, "x-a", "X-A", "q", ""),
			Value: pick(r, "/", "/a", "a", "[0-9]+", "(", ""),
		}
	}
	out := &busv1.RouteMatch{Method: pick(r, "", "", "GET", "get", "A B")}
	if r.IntN(2) == 0 {
		out.Path = &busv1.TypedValue{Type: pick(r, "Exact", "PathPrefix", "RegularExpression"), Value: pick(r, "/", "/a", "/.*")}
	}
	if r.IntN(4) == 0 {
		out.Headers = append(out.Headers, value())
		out.QueryParams = append(out.QueryParams, value())
	}
	if r.IntN(2) == 0 {
		out.Grpc = &busv1.GrpcMethod{Type: pick(r, "", "Exact", "RegularExpression"), Service: pick(r, "a.B", "", "a/b"), Method: pick(r, "C", "")}
	}
	return out
}

func anyFilter(r *rand.Rand) *busv1.RouteFilter {
	headers := &busv1.HeaderModifier{
		Set:    []*busv1.HeaderValue{{Name: pick(r, "x-a", "x-a", "X-A", "x a"), Value: pick(r, "1", "", "1", "a\nb")}},
		Remove: []string{pick(r, "x-c", "x-c", "")},
	}
	path := &busv1.PathModifier{Type: pick(r, "ReplaceFullPath", "ReplacePrefixMatch", "x"), Value: pick(r, "/", "/new", "new", "")}
	out := &busv1.RouteFilter{Type: pick(r, "RequestHeaderModifier", "ResponseHeaderModifier", "RequestRedirect", "URLRewrite", "RequestMirror", "ExtensionRef")}
	if r.IntN(10) == 0 {
		return out // it says nothing
	}
	out.RequestHeaders, out.ResponseHeaders = headers, headers
	out.Redirect = &busv1.Redirect{Scheme: pick(r, "", "https", "ftp"), Hostname: pick(r, "", "a.b", "a b"), Status: pick(r, uint32(0), 302, 200), Port: pick(r, uint32(0), 80, 70000), Path: path}
	out.Rewrite = &busv1.UrlRewrite{Hostname: pick(r, "", "a.b", "é"), Path: path}
	out.Mirror = &busv1.Mirror{Backend: anyBackend(r), Numerator: pick(r, uint32(0), 1, 7), Denominator: pick(r, uint32(0), 1, 100)}
	return out
}

func anyBackend(r *rand.Rand) *busv1.BackendRef {
	return &busv1.BackendRef{
		Group: pick(r, "", "core", "policy.linkerd.io", "x"), Kind: pick(r, "Service", "Service", "EgressNetwork", ""),
		Namespace: pick(r, "", "grove", "market"), Name: pick(r, "plum", "plum", "outside", "nowhere", "é"),
		Port: pick(r, uint32(80), 80, 81, 0, 99999), Weight: pick(r, uint32(0), 1, 1, math.MaxUint32),
	}
}
