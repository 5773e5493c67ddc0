package resolve

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	routepb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	metapb "github.com/linkerd/linkerd2-proxy-api/go/meta"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
)

// written is a route of either protocol, with rules of kind R.
type written[R any] interface {
	GetMetadata() *metapb.Metadata
	GetHosts() []*routepb.HostMatch
	GetRules() []R
}

func httpOf(routes []*outpb.HttpRoute, accrual *outpb.FailureAccrual) (HTTP, error) {
	return routesOf(routes, accrual, false, httpRule)
}

func grpcOf(routes []*outpb.GrpcRoute, accrual *outpb.FailureAccrual) (HTTP, error) {
	return routesOf(routes, accrual, true, grpcRule)
}

func routesOf[T written[R], R any](routes []T, accrual *outpb.FailureAccrual, grpc bool, ruleOf func(R) (Rule, error)) (HTTP, error) {
	var out HTTP
	var err error
	if out.Accrual, err = accrualOf(accrual); err != nil {
		return out, err
	}
	for _, r := range routes {
		route := Route{GRPC: grpc}
		if route.Ref, err = refOf(r.GetMetadata()); err != nil {
			return out, err
		}
		if route.Hosts, err = hostsOf(r.GetHosts()); err != nil {
			return out, err
		}
		for _, rule := range r.GetRules() {
			got, err := ruleOf(rule)
			if err != nil {
				return out, fmt.Errorf("%s: %w", route.Ref, err)
			}
			route.Rules = append(route.Rules, got)
		}
		out.Routes = append(out.Routes, route)
	}
	return out, nil
}

func httpRule(r *outpb.HttpRoute_Rule) (Rule, error) {
	var out Rule
	var err error
	for _, m := range r.GetMatches() {
		got, err := matchOf(m)
		if err != nil {
			return out, err
		}
		out.Matches = append(out.Matches, got)
	}
	if out.Filters, err = httpFilters(r.GetFilters()); err != nil {
		return out, err
	}
	out.Timeouts, out.AllowHeaders = timeoutsOf(r), r.GetAllowL5DRequestHeaders()
	if retry := r.GetRetry(); retry != nil {
		if retry.GetConditions() == nil {
			return out, errors.New("a retry without conditions")
		}
		out.Retry = retryOf(retry)
		for _, s := range retry.GetConditions().GetStatusRanges() {
			low, high := int(s.GetStart()), int(s.GetEnd())
			if low < 1 || high > 599 || low > high {
				return out, fmt.Errorf("status range %d-%d of a retry", low, high)
			}
			out.Retry.Statuses = append(out.Retry.Statuses, StatusRange{low, high})
		}
	}
	d := r.GetBackends()
	if _, none := d.GetKind().(*outpb.HttpRoute_Distribution_Empty_); none {
		return out, nil
	}
	return out, addBackends(&out.Backends, d.GetFirstAvailable().GetBackends(), d.GetRandomAvailable().GetBackends(), httpFiltered)
}

func grpcRule(r *outpb.GrpcRoute_Rule) (Rule, error) {
	var out Rule
	var err error
	for _, m := range r.GetMatches() {
		got, err := grpcMatch(m)
		if err != nil {
			return out, err
		}
		out.Matches = append(out.Matches, got)
	}
	if len(out.Matches) == 0 {
		out.Matches = []Match{{Method: http.MethodPost}}
	}
	if out.Filters, err = grpcFilters(r.GetFilters()); err != nil {
		return out, err
	}
	out.Timeouts, out.AllowHeaders = timeoutsOf(r), r.GetAllowL5DRequestHeaders()
	if retry := r.GetRetry(); retry != nil {
		if retry.GetConditions() == nil {
			return out, errors.New("a retry without conditions")
		}
		out.Retry = retryOf(retry)
		out.Retry.GRPC = codesOf(retry.GetConditions())
	}
	d := r.GetBackends()
	if _, none := d.GetKind().(*outpb.GrpcRoute_Distribution_Empty_); none {
		return out, nil
	}
	return out, addBackends(&out.Backends, d.GetFirstAvailable().GetBackends(), d.GetRandomAvailable().GetBackends(), grpcFiltered)
}

func httpFiltered(b *Backend, filters []*outpb.HttpRoute_Filter) (err error) {
	b.Filters, err = httpFilters(filters)
	return err
}

func grpcFiltered(b *Backend, filters []*outpb.GrpcRoute_Filter) (err error) {
	b.Filters, err = grpcFilters(filters)
	return err
}

// filtered is a backend of any protocol, with filters of kind F; weighted is one that
// takes a share.
type (
	filtered[F any] interface {
		GetBackend() *outpb.Backend
		GetFilters() []F
	}
	weighted[B any] interface {
		GetWeight() uint32
		GetBackend() B
	}
)

// addBackends takes those of whichever kind of split there is, and judges the whole.
func addBackends[B filtered[F], W weighted[B], F any](to *Split, first []B, random []W, read func(*Backend, []F) error) error {
	add := func(kind SplitKind, b B, weight uint32) error {
		out := Backend{Weight: weight}
		if err := read(&out, b.GetFilters()); err != nil {
			return err
		}
		return to.add(kind, b.GetBackend(), out)
	}
	for _, b := range first {
		if err := add(SplitFirst, b, 1); err != nil {
			return err
		}
	}
	for _, w := range random {
		if err := add(SplitRandom, w.GetBackend(), w.GetWeight()); err != nil {
			return err
		}
	}
	return to.check()
}

func codesOf(c *outpb.GrpcRoute_Retry_Conditions) []int {
	var out []int
	for code, on := range map[codes.Code]bool{
		codes.Canceled: c.GetCancelled(), codes.DeadlineExceeded: c.GetDeadineExceeded(), codes.ResourceExhausted: c.GetResourceExhausted(),
		codes.Internal: c.GetInternal(), codes.Unavailable: c.GetUnavailable(),
	} {
		if on {
			out = append(out, int(code))
		}
	}
	slices.Sort(out)
	return out
}

// timed is a rule of either protocol.
type timed interface {
	GetTimeouts() *routepb.Timeouts
	GetRequestTimeout() *durationpb.Duration // what older controllers send
}

func timeoutsOf(r timed) Timeouts {
	t := r.GetTimeouts()
	out := Timeouts{Request: t.GetRequest().AsDuration(), Response: t.GetResponse().AsDuration(), Idle: t.GetIdle().AsDuration()}
	if t.GetRequest() == nil {
		out.Request = r.GetRequestTimeout().AsDuration()
	}
	return out
}

// MaxReplay bounds what a policy may have kept of a request's body for another
// try, in bytes: that much memory is held for each request under way. Linkerd's
// controller asks for 64 KiB.
const MaxReplay = 1 << 20

// retried is a retry of either protocol.
type retried interface {
	GetMaxRetries() uint32
	GetMaxRequestBytes() uint32
	GetTimeout() *durationpb.Duration
	GetBackoff() *outpb.ExponentialBackoff
}

// retryOf reads all but what is tried again, which each protocol says in its way.
func retryOf(r retried) Retry {
	return Retry{
		Limit: int(min(r.GetMaxRetries(), 65535)), MaxBytes: int(min(r.GetMaxRequestBytes(), MaxReplay)),
		Timeout: r.GetTimeout().AsDuration(), Backoff: backoffOf(r.GetBackoff()),
	}
}
