package outbound

import (
	"time"

	routepb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/types/known/durationpb"
)

func retryOn(status uint32, limit uint32) *outpb.HttpRoute_Retry {
	return &outpb.HttpRoute_Retry{
		MaxRetries: limit, MaxRequestBytes: 65536,
		Conditions: &outpb.HttpRoute_Retry_Conditions{StatusRanges: []*outpb.HttpRoute_Retry_Conditions_StatusRange{{Start: status, End: status}}},
		Backoff:    &outpb.ExponentialBackoff{MinBackoff: durationpb.New(time.Millisecond), MaxBackoff: durationpb.New(2 * time.Millisecond)},
	}
}

func requestTimeout(d time.Duration) *routepb.Timeouts {
	return &routepb.Timeouts{Request: durationpb.New(d)}
}
