package caseset

import (
	"github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/opaque_route"
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
		sayBackends(said, rule.GetBackends(), outboundFilter)
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
		sayBackends(said, rule.GetBackends(), filters)
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
	rules := []any{}
	for _, rule := range r.GetRules() {
		said := map[string]any{"filters": each(rule.GetFilters(), streamFilter)}
		sayBackends(said, rule.GetBackends(), streamFilter[*outbound.OpaqueRoute_Filter])
		rules = append(rules, said)
	}
	return map[string]any{"meta": metaOf(r.GetMetadata()), "rules": rules}
}

func outboundTLS(r *outbound.TlsRoute) any {
	rules := []any{}
	for _, rule := range r.GetRules() {
		said := map[string]any{"filters": each(rule.GetFilters(), streamFilter)}
		sayBackends(said, rule.GetBackends(), streamFilter[*outbound.TlsRoute_Filter])
		rules = append(rules, said)
	}
	return map[string]any{"meta": metaOf(r.GetMetadata()), "rules": rules}
}

func streamFilter[F interface {
	GetForbidden() *opaque_route.Forbidden
}](f F) any {
	return map[bool]string{true: "forbidden", false: "invalid"}[f.GetForbidden() != nil]
}

// Backends of the routes of every protocol are alike, though each has messages of its own.
type (
	distribution[A, R, E any] interface {
		GetFirstAvailable() A
		GetRandomAvailable() R
		GetEmpty() E
	}
	listed[B any] interface {
		comparable
		GetBackends() []B
	}
	filtered[F any] interface {
		GetBackend() *outbound.Backend
		GetFilters() []F
	}
	weighted[B any] interface {
		GetWeight() uint32
		GetBackend() B
	}
)

func sayBackends[
	D distribution[A, R, E], A listed[B], R listed[W], E comparable, B filtered[F], W weighted[B], F any,
](said map[string]any, d D, filter func(F) any) {
	var noFirst A
	var noRandom R
	var noEmpty E
	switch {
	case d.GetFirstAvailable() != noFirst:
		said["first_available"] = each(d.GetFirstAvailable().GetBackends(), func(b B) any {
			one := backend(b.GetBackend())
			one["filters"] = each(b.GetFilters(), filter)
			return one
		})
	case d.GetRandomAvailable() != noRandom:
		said["random_available"] = each(d.GetRandomAvailable().GetBackends(), func(w W) any {
			b := w.GetBackend()
			return map[string]any{"weight": w.GetWeight(), "backend": backend(b.GetBackend()), "filters": each(b.GetFilters(), filter)}
		})
	case d.GetEmpty() != noEmpty:
		said["empty"] = true
	}
}
