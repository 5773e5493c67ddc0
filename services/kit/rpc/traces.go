package rpc

import (
	"context"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
)

// traces draws spans of calls, and costs nothing where there are none: if this
// process exports no traces and the caller sent no context of one, which logs
// would name.
type traces struct {
	stats.Handler
	exports bool
}

func newTraces() stats.Handler {
	_, exports := otel.GetTracerProvider().(*sdktrace.TracerProvider)
	return traces{otelgrpc.NewServerHandler(), exports}
}

// TagRPC implements stats.Handler.
func (t traces) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if !t.exports && len(metadata.ValueFromIncomingContext(ctx, "traceparent")) == 0 {
		return ctx
	}
	return t.Handler.TagRPC(ctx, info)
}
