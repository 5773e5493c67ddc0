package rpc

import (
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
)

// TestTracesCostNothingWithoutAny: without an exporter only a call that brings a
// context of a trace gets one.
func TestTracesCostNothingWithoutAny(t *testing.T) {
	before := otel.GetTextMapPropagator()
	otel.SetTextMapPropagator(propagation.TraceContext{})
	t.Cleanup(func() { otel.SetTextMapPropagator(before) })
	h, info := newTraces(), &stats.RPCTagInfo{FullMethodName: "/a.B/C"}
	plain := metadata.NewIncomingContext(t.Context(), metadata.Pairs("user-agent", "x"))
	if got := h.TagRPC(plain, info); got != plain {
		t.Error("a call without a trace was tagged")
	}
	const id = "0af7651916cd43dd8448eb211c80319c"
	traced := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", "00-"+id+"-b7ad6b7169203331-01"))
	if got := trace.SpanContextFromContext(h.TagRPC(traced, info)).TraceID().String(); got != id {
		t.Errorf("the trace is %s, want %s", got, id)
	}
}
