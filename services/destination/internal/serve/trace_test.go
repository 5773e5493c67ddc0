package serve

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/destination/internal/row/rowtest"
)

// TestAChangeIsFollowedToTheStream: the spans are children of the change's, and
// drawn only where it was sent.
func TestAChangeIsFollowedToTheStream(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(provider)
	t.Cleanup(func() { otel.SetTracerProvider(before) })

	r := newRig(t, Config{})
	r.apply("service grove/plum port=:80\nendpoint grove/plum/a/10.0.0.1 port=:80")
	g := r.get(plum, "")
	g.want("+10.0.0.1:80")
	cause := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true,
	})
	for _, text := range []string{"service grove/plum port=:80 ip=10.96.0.1", "endpoint grove/plum/a/10.0.0.2 port=:80"} {
		changes, err := rowtest.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		r.tables.Apply(bus.Cut{Changes: changes, ObservedAt: time.Now(), Trace: cause})
	}
	g.want("+10.0.0.2:80")
	followed := func() map[string]int {
		names := make(map[string]int)
		for _, s := range spans.GetSpans() {
			if s.Parent.TraceID() == cause.TraceID() && s.Parent.SpanID() == cause.SpanID() {
				names[s.Name]++
			}
		}
		return names
	}
	eventually(t, "followed", func() bool { return len(followed()) == 2 })
	if got := followed(); got["derive"] != 1 || got["stream write"] != 1 {
		t.Errorf("spans of the change: %v, want one of derive and one of stream write", got)
	}
}
