package span

import (
	"context"
	"log/slog"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	// Spans wait in a channel, and go in batches (spec/proxy.md §14).
	room     = 100
	maxBatch = 1000
	every    = 10 * time.Second
	// exportTimeout bounds one export; what it could not send is gone.
	exportTimeout = 10 * time.Second
	lastTimeout   = time.Second // of the export at the end of the process
	exportMethod  = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
)

// Told counts what an Exporter does. Each may be nil.
type Told struct {
	Dropped func()      // a span for which there was no room
	Begun   func()      // an export
	Taken   func(n int) // an export of so many spans that the collector has taken
}

// Exporter sends spans to a collector by OTLP. A nil Exporter makes no spans, so
// that a proxy without a collector pays nothing.
type Exporter struct {
	conn     grpc.ClientConnInterface
	resource []*commonpb.KeyValue
	spans    chan *tracepb.Span
	told     Told
	log      *slog.Logger
	now      func() time.Time
	every    time.Duration
}

// New returns an exporter; Run sends. conn is to the collector.
func New(conn grpc.ClientConnInterface, resource []*commonpb.KeyValue, told Told, log *slog.Logger) *Exporter {
	return &Exporter{
		conn: conn, resource: resource, spans: make(chan *tracepb.Span, room), told: told, log: log, now: time.Now, every: every,
	}
}

func (e *Exporter) add(s *tracepb.Span) {
	select {
	case e.spans <- s:
	default:
		if e.told.Dropped != nil {
			e.told.Dropped()
		}
	}
}

// Run sends what comes in, until ctx ends, and then once more what still waits.
func (e *Exporter) Run(ctx context.Context) error {
	tick := time.NewTicker(e.every)
	defer tick.Stop()
	var batch []*tracepb.Span
	for {
		select {
		case s := <-e.spans:
			if batch = append(batch, s); len(batch) < maxBatch {
				continue
			}
		case <-tick.C:
		case <-ctx.Done():
			for len(e.spans) > 0 {
				batch = append(batch, <-e.spans)
			}
			if len(batch) > 0 {
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
				e.export(last, batch)
				cancel()
			}
			return nil
		}
		if len(batch) > 0 {
			e.export(ctx, batch)
			batch = nil
		}
	}
}

// export sends a batch once. The request of the service has one field, and on the
// wire is a TracesData; the package that names it so would bring an HTTP gateway
// with it.
func (e *Exporter) export(ctx context.Context, batch []*tracepb.Span) {
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	if e.told.Begun != nil {
		e.told.Begun()
	}
	data := &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:   &resourcepb.Resource{Attributes: e.resource},
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: batch}},
	}}}
	err := e.conn.Invoke(ctx, exportMethod, data, new(emptypb.Empty))
	if err != nil {
		e.log.Debug("spans were not taken by the collector", "spans", len(batch), "error", err)
		return
	}
	if e.told.Taken != nil {
		e.told.Taken(len(batch))
	}
}
