package caseset

import (
	"github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
)

func grpcMatch(m *grpc_route.GrpcRouteMatch) any {
	return map[string]any{"rpc": map[string]any{"service": m.GetRpc().GetService(), "method": m.GetRpc().GetMethod()}}
}

func accrual(a *outbound.FailureAccrual) any {
	switch {
	case a.GetConsecutiveFailures() != nil:
		c := a.GetConsecutiveFailures()
		return map[string]any{"consecutive": map[string]any{"max_failures": c.GetMaxFailures(), "backoff": backoff(c.GetBackoff())}}
	case a.GetUnified() != nil:
		u := a.GetUnified()
		return map[string]any{"unified": map[string]any{
			"threshold": u.GetSuccessRateThreshold(), "decay": duration(u.GetDecay()), "min_requests": u.GetMinRequests(),
			"max_failures": u.GetMaxConsecutiveFailures(), "backoff": backoff(u.GetBackoff()),
		}}
	}
	return nil
}

func backoff(b *outbound.ExponentialBackoff) any {
	return map[string]any{
		"min": duration(b.GetMinBackoff()), "max": duration(b.GetMaxBackoff()),
		"jitter": float(b.GetJitterRatio()), "respect_retry_after": b.GetRespectRetryAfterHint(),
	}
}

func backend(b *outbound.Backend) map[string]any {
	out := map[string]any{"meta": metaOf(b.GetMetadata())}
	if f := b.GetForward(); f != nil {
		out["forward"] = tcp(f.GetAddr())
	}
	if p2c := b.GetBalancer(); p2c != nil {
		out["balancer"] = map[string]any{"path": p2c.GetDiscovery().GetDst().GetPath()}
		switch {
		case p2c.GetPeakEwma() != nil:
			out["load"] = "peak_ewma"
		case p2c.GetPenaltyPeakEwma() != nil:
			e := p2c.GetPenaltyPeakEwma()
			out["load"] = map[string]any{"penalty_peak_ewma": map[string]any{
				"penalty": duration(e.GetPenalty()), "decay": duration(e.GetDecay()), "max_retry_after": duration(e.GetMaxRetryAfter()),
			}}
		}
	}
	return out
}

// firstLoad finds the load of the first balanced backend.
func firstLoad(routes []any) any {
	for _, r := range routes {
		route, _ := r.(map[string]any)
		rules, _ := route["rules"].([]any)
		for _, one := range rules {
			rule, _ := one.(map[string]any)
			for _, name := range []string{"first_available", "random_available"} {
				list, _ := rule[name].([]any)
				for _, b := range list {
					entry, _ := b.(map[string]any)
					if inner, ok := entry["backend"].(map[string]any); ok {
						entry = inner
					}
					if entry["load"] != nil {
						return entry["load"]
					}
				}
			}
		}
	}
	return nil
}

func hosts(list []*http_route.HostMatch) []any {
	out := []any{}
	for _, h := range list {
		if h.GetSuffix() != nil {
			out = append(out, map[string]any{"suffix": append([]string{}, h.GetSuffix().GetReverseLabels()...)})
		} else {
			out = append(out, h.GetExact())
		}
	}
	return out
}

func timeouts(t *http_route.Timeouts) any {
	if t == nil {
		return nil
	}
	out := map[string]any{}
	for name, d := range map[string]any{"request": duration(t.GetRequest()), "response": duration(t.GetResponse()), "idle": duration(t.GetIdle())} {
		if d != nil {
			out[name] = d
		}
	}
	return out
}

func outboundHTTP(r *outbound.HttpRoute) any {
	rules := []any{}
	for _, rule := range r.GetRules() {
		said := map[string]any{
			"matches": each(rule.GetMatches(), httpMatch), "filters": each(rule.GetFilters(), outboundFilter), "timeouts": timeouts(rule.GetTimeouts()),
		}
		if retry := rule.GetRetry(); retry != nil {
			ranges := []any{}
			for _, s := range retry.GetConditions().GetStatusRanges() {
				ranges = append(ranges, []any{s.GetStart(), s.GetEnd()})
			}
			said["retry"] = map[string]any{"max": retry.GetMaxRetries(), "status": ranges, "timeout": duration(retry.GetTimeout())}
		}
		switch d := rule.GetBackends(); {
		case d.GetFirstAvailable() != nil:
			said["first_available"] = each(d.GetFirstAvailable().GetBackends(), func(b *outbound.HttpRoute_RouteBackend) any {
				return with(backend(b.GetBackend()), "filters", each(b.GetFilters(), outboundFilter))
			})
		case d.GetRandomAvailable() != nil:
			said["random_available"] = each(d.GetRandomAvailable().GetBackends(), func(b *outbound.HttpRoute_WeightedRouteBackend) any {
				return weighted(b.GetWeight(), b.GetBackend().GetBackend(), each(b.GetBackend().GetFilters(), outboundFilter))
			})
		case d.GetEmpty() != nil:
			said["empty"] = true
		}
		rules = append(rules, said)
	}
	return map[string]any{"meta": metaOf(r.GetMetadata()), "hosts": hosts(r.GetHosts()), "rules": rules}
}

func outboundFilter(f *outbound.HttpRoute_Filter) any {
	return filter(f.GetFailureInjector() != nil, f.GetRequestHeaderModifier(), f.GetResponseHeaderModifier(), f.GetRedirect())
}

func outboundGRPC(r *outbound.GrpcRoute) any {
	filters := func(f *outbound.GrpcRoute_Filter) any {
		return filter(f.GetFailureInjector() != nil, f.GetRequestHeaderModifier(), nil, nil)
	}
	rules := []any{}
	for _, rule := range r.GetRules() {
		said := map[string]any{
			"matches": each(rule.GetMatches(), grpcMatch), "filters": each(rule.GetFilters(), filters), "timeouts": timeouts(rule.GetTimeouts()),
		}
		if retry := rule.GetRetry(); retry != nil {
			said["retry"] = map[string]any{"max": retry.GetMaxRetries(), "grpc": conditions(retry.GetConditions()), "timeout": duration(retry.GetTimeout())}
		}
		switch d := rule.GetBackends(); {
		case d.GetFirstAvailable() != nil:
			said["first_available"] = each(d.GetFirstAvailable().GetBackends(), func(b *outbound.GrpcRoute_RouteBackend) any {
				return with(backend(b.GetBackend()), "filters", each(b.GetFilters(), filters))
			})
		case d.GetRandomAvailable() != nil:
			said["random_available"] = each(d.GetRandomAvailable().GetBackends(), func(b *outbound.GrpcRoute_WeightedRouteBackend) any {
				return weighted(b.GetWeight(), b.GetBackend().GetBackend(), each(b.GetBackend().GetFilters(), filters))
			})
		case d.GetEmpty() != nil:
			said["empty"] = true
		}
		rules = append(rules, said)
	}
	return map[string]any{"meta": metaOf(r.GetMetadata()), "hosts": hosts(r.GetHosts()), "rules": rules}
}

func conditions(c *outbound.GrpcRoute_Retry_Conditions) []any {
	out := []any{}
	for _, one := range []struct {
		name string
		set  bool
	}{
		{"cancelled", c.GetCancelled()},
		{"deadline-exceeded", c.GetDeadineExceeded()},
		{"resource-exhausted", c.GetResourceExhausted()},
		{"internal", c.GetInternal()},
		{"unavailable", c.GetUnavailable()},
	} {
		if one.set {
			out = append(out, one.name)
		}
	}
	return out
}

func outboundOpaque(r *outbound.OpaqueRoute) any {
	filters := func(f *outbound.OpaqueRoute_Filter) any {
		return map[bool]string{true: "forbidden", false: "invalid"}[f.GetForbidden() != nil]
	}
	rules := []any{}
	for _, rule := range r.GetRules() {
		said := map[string]any{"filters": each(rule.GetFilters(), filters)}
		switch d := rule.GetBackends(); {
		case d.GetFirstAvailable() != nil:
			said["first_available"] = each(d.GetFirstAvailable().GetBackends(), func(b *outbound.OpaqueRoute_RouteBackend) any {
				return with(backend(b.GetBackend()), "filters", each(b.GetFilters(), filters))
			})
		case d.GetRandomAvailable() != nil:
			said["random_available"] = each(d.GetRandomAvailable().GetBackends(), func(b *outbound.OpaqueRoute_WeightedRouteBackend) any {
				return weighted(b.GetWeight(), b.GetBackend().GetBackend(), each(b.GetBackend().GetFilters(), filters))
			})
		case d.GetEmpty() != nil:
			said["empty"] = true
		}
		rules = append(rules, said)
	}
	return map[string]any{"meta": metaOf(r.GetMetadata()), "rules": rules}
}

func outboundTLS(r *outbound.TlsRoute) any {
	filters := func(f *outbound.TlsRoute_Filter) any {
		return map[bool]string{true: "forbidden", false: "invalid"}[f.GetForbidden() != nil]
	}
	rules := []any{}
	for _, rule := range r.GetRules() {
		said := map[string]any{"filters": each(rule.GetFilters(), filters)}
		switch d := rule.GetBackends(); {
		case d.GetFirstAvailable() != nil:
			said["first_available"] = each(d.GetFirstAvailable().GetBackends(), func(b *outbound.TlsRoute_RouteBackend) any {
				return with(backend(b.GetBackend()), "filters", each(b.GetFilters(), filters))
			})
		case d.GetRandomAvailable() != nil:
			said["random_available"] = each(d.GetRandomAvailable().GetBackends(), func(b *outbound.TlsRoute_WeightedRouteBackend) any {
				return weighted(b.GetWeight(), b.GetBackend().GetBackend(), each(b.GetBackend().GetFilters(), filters))
			})
		case d.GetEmpty() != nil:
			said["empty"] = true
		}
		rules = append(rules, said)
	}
	return map[string]any{"meta": metaOf(r.GetMetadata()), "rules": rules}
}

func with(m map[string]any, key string, value any) map[string]any {
	m[key] = value
	return m
}

func weighted(weight uint32, b *outbound.Backend, filters []any) any {
	return map[string]any{"weight": weight, "backend": backend(b), "filters": filters}
}
