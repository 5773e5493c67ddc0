package outbound

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"
	"github.com/linkerd/linkerd2-proxy-api/go/net"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// What Linkerd's controller sends and its proxy expects. Source: §9.2, §9.6.
const (
	queueCapacity = 100
	queueFailfast = 3 * time.Second

	defaultRTT   = 30 * time.Millisecond
	rttDecay     = 10 * time.Second
	penaltyDecay = 10 * time.Second

	retryBodyBytes  = 64 << 10
	retryMinBackoff = 25 * time.Millisecond
	retryMaxBackoff = 250 * time.Millisecond
	retryJitter     = 1
)

// balanced is a backend whose endpoints the destination service tells. Only HTTP
// and gRPC have response codes that a penalty could follow.
func balanced(c derive.Cluster, t derive.ServicePort, p *penalty) *outbound.Backend {
	balancer := &outbound.Backend_BalanceP2C{
		Discovery: &outbound.Backend_EndpointDiscovery{Kind: &outbound.Backend_EndpointDiscovery_Dst{
			Dst: &outbound.Backend_EndpointDiscovery_DestinationGet{
				Path: fmt.Sprintf("%s.%s.svc.%s:%d", t.Name, t.Namespace, c.Domain, t.Port),
			},
		}},
		Load: &outbound.Backend_BalanceP2C_PeakEwma_{PeakEwma: &outbound.Backend_BalanceP2C_PeakEwma{
			DefaultRtt: durationpb.New(defaultRTT),
			Decay:      durationpb.New(rttDecay),
		}},
	}
	if p != nil {
		balancer.Load = &outbound.Backend_BalanceP2C_PenaltyPeakEwma_{PenaltyPeakEwma: &outbound.Backend_BalanceP2C_PenaltyPeakEwma{
			DefaultRtt:    durationpb.New(defaultRTT),
			Decay:         durationpb.New(rttDecay),
			Penalty:       durationpb.New(p.penalty),
			MaxRetryAfter: durationpb.New(p.maxRetryAfter),
			PenaltyDecay:  durationpb.New(penaltyDecay),
		}}
	}
	return &outbound.Backend{
		Metadata: service(t),
		Queue:    queue(),
		Kind:     &outbound.Backend_Balancer{Balancer: balancer},
	}
}

// forwarded is a backend of one address.
func forwarded(m *meta.Metadata, dst netip.AddrPort, weight uint32) *outbound.Backend {
	return &outbound.Backend{
		Metadata: m,
		Queue:    queue(),
		Kind: &outbound.Backend_Forward{Forward: &destination.WeightedAddr{
			Addr:   &net.TcpAddress{Ip: derive.IPAddress(dst.Addr().Unmap()), Port: uint32(dst.Port())},
			Weight: weight,
		}},
	}
}

// unusable is a backend to which nothing is sent: a filter fails what chooses it.
func unusable(m *meta.Metadata) *outbound.Backend {
	return &outbound.Backend{Metadata: m, Queue: queue()}
}

func queue() *outbound.Queue {
	return &outbound.Queue{Capacity: queueCapacity, FailfastTimeout: durationpb.New(queueFailfast)}
}

func breaker(a *accrual) *outbound.FailureAccrual {
	if a == nil {
		return nil
	}
	backoff := &outbound.ExponentialBackoff{
		MinBackoff:            durationpb.New(a.minPenalty),
		MaxBackoff:            durationpb.New(a.maxPenalty),
		JitterRatio:           a.jitter,
		RespectRetryAfterHint: a.honourRetryAfter,
	}
	if !a.unified {
		return &outbound.FailureAccrual{Kind: &outbound.FailureAccrual_ConsecutiveFailures_{
			ConsecutiveFailures: &outbound.FailureAccrual_ConsecutiveFailures{
				MaxFailures: a.maxFailures, Backoff: backoff,
			},
		}}
	}
	return &outbound.FailureAccrual{Kind: &outbound.FailureAccrual_Unified_{Unified: &outbound.FailureAccrual_Unified{
		SuccessRateThreshold: a.threshold,
		// The field is called decay and holds the window.
		Decay:                  durationpb.New(a.window),
		MinRequests:            a.minRequests,
		MaxConsecutiveFailures: a.maxFailures,
		Backoff:                backoff,
	}}}
}

func httpRetry(r *retry) *outbound.HttpRoute_Retry {
	if r == nil {
		return nil
	}
	// A proxy refuses a retry without conditions, so they are sent even if empty.
	conditions := &outbound.HttpRoute_Retry_Conditions{}
	for _, s := range r.statuses {
		conditions.StatusRanges = append(conditions.StatusRanges, &outbound.HttpRoute_Retry_Conditions_StatusRange{
			Start: s.First, End: s.Last,
		})
	}
	return &outbound.HttpRoute_Retry{
		MaxRetries:      r.limit,
		MaxRequestBytes: retryBodyBytes,
		Conditions:      conditions,
		Timeout:         unlessZero(r.timeout),
		Backoff:         retryBackoff(),
	}
}

func grpcRetry(r *retry) *outbound.GrpcRoute_Retry {
	if r == nil {
		return nil
	}
	return &outbound.GrpcRoute_Retry{
		MaxRetries:      r.limit,
		MaxRequestBytes: retryBodyBytes,
		Conditions: &outbound.GrpcRoute_Retry_Conditions{
			Cancelled:         r.codes.Cancelled,
			DeadineExceeded:   r.codes.DeadlineExceeded,
			Internal:          r.codes.Internal,
			ResourceExhausted: r.codes.ResourceExhausted,
			Unavailable:       r.codes.Unavailable,
		},
		Timeout: unlessZero(r.timeout),
		Backoff: retryBackoff(),
	}
}

func retryBackoff() *outbound.ExponentialBackoff {
	return &outbound.ExponentialBackoff{
		MinBackoff:  durationpb.New(retryMinBackoff),
		MaxBackoff:  durationpb.New(retryMaxBackoff),
		JitterRatio: retryJitter,
	}
}

func timeoutsOf(t timeouts) *http_route.Timeouts {
	return &http_route.Timeouts{
		Request:  unlessZero(t.request),
		Response: unlessZero(t.response),
		Idle:     unlessZero(t.idle),
	}
}

// unlessZero leaves a duration out that would mean "at once" on the wire.
func unlessZero(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
