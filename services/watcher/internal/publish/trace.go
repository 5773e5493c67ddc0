package publish

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weftmesh/weft/services/watcher/internal/source"
)

// trace records what led to one batch: the event at the source, from when it was
// seen; the shaping, which is over; and the publishing, which the returned
// context carries to the bus and from there to every reader. Spans begin only
// when there is something to publish, so that the steady noise of status updates
// that change no row leaves no traces.
func (p *Publisher) trace(ctx context.Context, causes []source.Change, observed, started, shaped time.Time) (context.Context, func(error)) {
	if observed.IsZero() || observed.After(started) {
		observed = started
	}
	attrs := []attribute.KeyValue{attribute.Int("weft.objects", len(causes))}
	if len(causes) > 0 {
		attrs = append(attrs,
			attribute.String("weft.object", causes[0].ID.String()),
			attribute.String("weft.kind", string(causes[0].ID.Kind)))
	}
	ctx, event := p.tracer.Start(ctx, "kubernetes event",
		trace.WithNewRoot(), trace.WithTimestamp(observed), trace.WithAttributes(attrs...))
	_, shape := p.tracer.Start(ctx, "shape", trace.WithTimestamp(started))
	shape.End(trace.WithTimestamp(shaped))
	ctx, publish := p.tracer.Start(ctx, "bus publish", trace.WithSpanKind(trace.SpanKindProducer))
	return ctx, func(err error) {
		if err != nil {
			publish.SetStatus(codes.Error, err.Error())
		}
		publish.End()
		event.End()
	}
}
