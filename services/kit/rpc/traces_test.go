package rpc

import (
	"testing"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

// TestTracesCostNothingWithoutAny: without an exporter only a call that brings a
// context of a trace gets one, and gRPC has no handler to tell of calls.
func TestTracesCostNothingWithoutAny(t *testing.T) {
	before := otel.GetTextMapPropagator()
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	t.Cleanup(func() { otel.SetTextMapPropagator(before) })
	if n := len(traces()); n != 0 {
		t.Errorf("%d options draw spans that nobody exports", n)
	}
	c, meta := newCalls(exportsTraces()), interceptors.CallMeta{Service: "a.B", Method: "C"}
	plain := metadata.NewIncomingContext(t.Context(), metadata.Pairs("user-agent", "x"))
	if _, got := c.ServerReporter(plain, meta); got != plain {
		t.Error("a call without a trace has another context")
	}
	const id = "0af7651916cd43dd8448eb211c80319c"
	traced := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", "00-"+id+"-b7ad6b7169203331-01"))
	_, got := c.ServerReporter(traced, meta)
	if got := trace.SpanContextFromContext(got).TraceID().String(); got != id {
		t.Errorf("the trace is %s, want %s", got, id)
	}
}

// TestTracesAreDrawnForAnExporter: the handler of gRPC's does it then, alone.
func TestTracesAreDrawnForAnExporter(t *testing.T) {
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider())
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	if n := len(traces()); n != 1 {
		t.Errorf("%d options draw spans, want one", n)
	}
	if !newCalls(exportsTraces()).exports {
		t.Error("the caller's trace is read twice")
	}
}
