package bus_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
)

// TestSpansOfOneChange: the caller's span, "bus publish" under it, and under
// that one "bus apply" for each reader, whose context the cut carries.
func TestSpansOfOneChange(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	defer otel.SetTracerProvider(before)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		mem := bustest.Memory()
		tr := mem.Join("")
		lead := bus.NewReader(tr, bus.ReaderConfig{})
		w := bus.NewWriter(tr, lead, bus.WriterConfig{})
		reader := bus.NewReader(mem.Join(""), bus.ReaderConfig{})
		for _, run := range []func(context.Context) error{lead.Run, w.Run, reader.Run} {
			go func() { _ = run(ctx) }()
		}
		if err := w.Lead(ctx, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cuts := make(chan bus.Cut, 10)
		go func() {
			for cut, err := range reader.Read(ctx) {
				if err != nil {
					return
				}
				cuts <- cut
			}
		}()
		<-cuts
		from, source := otel.Tracer("test").Start(ctx, "source")
		if _, err := w.Append(from, []bus.Change{node("n", "a")}, time.Now()); err != nil {
			t.Fatal(err)
		}
		source.End()
		cut := <-cuts
		synctest.Wait()
		byName := map[string][]sdktrace.ReadOnlySpan{}
		for _, s := range recorder.Ended() {
			if s.SpanContext().TraceID() == source.SpanContext().TraceID() {
				byName[s.Name()] = append(byName[s.Name()], s)
			}
		}
		if len(byName["bus publish"]) != 1 || len(byName["bus apply"]) != 1 {
			t.Fatalf("spans of the trace: %v, want one publish and one apply (the writer's own copy applies nothing twice)", byName)
		}
		publish, apply := byName["bus publish"][0], byName["bus apply"][0]
		if publish.SpanKind() != trace.SpanKindProducer || publish.Parent().SpanID() != source.SpanContext().SpanID() {
			t.Errorf("publish is a %v under %v, want a producer under the source", publish.SpanKind(), publish.Parent().SpanID())
		}
		if apply.SpanKind() != trace.SpanKindConsumer || apply.Parent().SpanID() != publish.SpanContext().SpanID() || !apply.Parent().IsRemote() {
			t.Errorf("apply is a %v under %v, want a consumer under publish", apply.SpanKind(), apply.Parent().SpanID())
		}
		if cut.Trace.SpanID() != apply.SpanContext().SpanID() {
			t.Errorf("the cut carries span %v, want apply's %v", cut.Trace.SpanID(), apply.SpanContext().SpanID())
		}
	})
}
