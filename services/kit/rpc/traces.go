package rpc

import (
	"context"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// exportsTraces tells whether spans go anywhere.
func exportsTraces() bool {
	_, ok := otel.GetTracerProvider().(*sdktrace.TracerProvider)
	return ok
}

// traces draws spans of calls. gRPC copies every call's metadata for a handler of
// this kind, so there is none where spans go nowhere.
func traces() []grpc.ServerOption {
	if !exportsTraces() {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler())}
}

// withCallersTrace continues the caller's trace, if there is one, so that logs
// name it though this process draws no spans.
func withCallersTrace(ctx context.Context) context.Context {
	if len(metadata.ValueFromIncomingContext(ctx, "traceparent")) == 0 {
		return ctx
	}
	return otel.GetTextMapPropagator().Extract(ctx, incoming{ctx})
}

// incoming is a call's metadata as OpenTelemetry reads it.
type incoming struct{ ctx context.Context } //nolint:containedctx // it is the metadata

// Get implements propagation.TextMapCarrier.
func (i incoming) Get(key string) string {
	if v := metadata.ValueFromIncomingContext(i.ctx, key); len(v) > 0 {
		return v[0]
	}
	return ""
}

// Set does nothing: what came is only read.
func (incoming) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (i incoming) Keys() []string {
	md, _ := metadata.FromIncomingContext(i.ctx)
	keys := make([]string, 0, len(md))
	for k := range md {
		keys = append(keys, k)
	}
	return keys
}
