package bus

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const tracerName = "github.com/weftmesh/weft/bus"

// The log speaks W3C trace context whatever the process's own propagator is:
// both ends are ours.
var propagator = propagation.TraceContext{}

func startPublish(ctx context.Context, cluster string, at position, changes int) (context.Context, trace.Span) {
	return otel.Tracer(tracerName).Start(ctx, "bus publish", trace.WithSpanKind(trace.SpanKindProducer), attributes(cluster, at, changes))
}

// startApply continues the trace of the message.
func startApply(cluster, parent string, at position, changes int) trace.Span {
	ctx := context.Background()
	if parent != "" {
		ctx = propagator.Extract(ctx, propagation.MapCarrier{headerTrace: parent})
	}
	_, span := otel.Tracer(tracerName).Start(ctx, "bus apply", trace.WithSpanKind(trace.SpanKindConsumer), attributes(cluster, at, changes))
	return span
}

func attributes(cluster string, at position, changes int) trace.SpanStartOption {
	return trace.WithAttributes(
		attribute.String("weft.cluster", cluster),
		attribute.Int64("weft.epoch", int64(at.epoch)),
		attribute.Int64("weft.seq", int64(at.seq)),
		attribute.Int("weft.changes", changes),
	)
}

// traceparent is the context's trace as a header; empty when there is none.
func traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagator.Inject(ctx, carrier)
	return carrier[headerTrace]
}
