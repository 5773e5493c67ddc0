package feed

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// cuts is a log of fixed cuts.
type cuts struct {
	list []bus.Cut
	err  error
}

func (c cuts) Read(context.Context) iter.Seq2[bus.Cut, error] {
	return func(yield func(bus.Cut, error) bool) {
		for _, cut := range c.list {
			if !yield(cut, nil) {
				return
			}
		}
		yield(bus.Cut{}, c.err)
	}
}

// heard keeps what was applied.
type heard struct {
	cuts   []table.Cut
	report table.Report
}

func (h *heard) Apply(c table.Cut) table.Report {
	h.cuts = append(h.cuts, c)
	return h.report
}

func TestRunAppliesCutsInOrder(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder)).Tracer("test")
	_, span := tracer.Start(t.Context(), "cut")
	at := time.Unix(100, 0)
	h := &heard{report: table.Report{Skipped: []error{errors.New("a row")}, Problems: map[string][]string{"service a/b": {"an annotation"}}}}
	broken := errors.New("reading the log: no")
	reg := prometheus.NewRegistry()
	f := New(cuts{list: []bus.Cut{
		{Complete: true, Changes: []bus.Change{{Key: "one"}}},
		{Epoch: 2, Seq: 7, ObservedAt: at, Trace: span.SpanContext(), Changes: []bus.Change{{Key: "two"}}},
	}, err: broken}, h, reg)
	f.tracer = tracer
	if err := f.Run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("Run() = %v, want the log's error", err)
	}
	if len(h.cuts) != 2 || !h.cuts[0].Complete || h.cuts[1].Complete || h.cuts[1].Changes[0].Key != "two" ||
		!h.cuts[1].Cause.ObservedAt.Equal(at) || !h.cuts[1].Cause.Trace.Equal(span.SpanContext()) ||
		h.cuts[1].Position != (table.Position{Epoch: 2, Seq: 7}) {
		t.Errorf("applied %+v", h.cuts)
	}
	ended := recorder.Ended()
	if len(ended) != 1 || ended[0].Parent().SpanID() != span.SpanContext().SpanID() {
		t.Errorf("spans %v, want one child of the cut's", ended)
	}
	families, err := reg.Gather()
	if err != nil || len(families) != 2 {
		t.Fatalf("metrics: %d, %v", len(families), err)
	}
	if got := families[1].GetMetric()[0].GetCounter().GetValue(); got != 2 {
		t.Errorf("%v rows skipped, want 2", got)
	}
}

func TestRunEndsQuietlyWhenAsked(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	f := New(cuts{err: context.Canceled}, &heard{}, prometheus.NewRegistry())
	if err := f.Run(ctx); err != nil {
		t.Errorf("Run() = %v", err)
	}
}

// TestFromWriterToTables sends rows over a bus in memory.
func TestFromWriterToTables(t *testing.T) {
	mem := bustest.Memory()
	ctx, stop := context.WithCancel(t.Context())
	running := make(chan error, 4)
	run := func(part func(context.Context) error) { go func() { running <- part(ctx) }() }

	writerEnd := mem.Join("")
	source := bus.NewReader(writerEnd, bus.ReaderConfig{Registry: prometheus.NewRegistry()})
	writer := bus.NewWriter(writerEnd, source, bus.WriterConfig{})
	copied := bus.NewReader(mem.Join(""), bus.ReaderConfig{Registry: prometheus.NewRegistry()})
	tables := table.New(derive.Cluster{Domain: "cluster.local"})
	run(source.Run)
	run(copied.Run)
	run(New(copied, tables, prometheus.NewRegistry()).Run)
	watch := tables.WatchService("grove", "plum")
	row := func(port uint32) []bus.Change {
		return []bus.Change{{Table: busv1.Table_TABLE_SERVICES, Key: bus.Key("grove", "plum"), Value: bus.Encode(&busv1.Service{
			Namespace: "grove", Name: "plum", Ports: []*busv1.ServicePort{{Port: port}},
		})}}
	}
	if err := writer.Lead(ctx, row(80)); err != nil {
		t.Fatal(err)
	}
	run(writer.Run)
	declares := func(port uint16) {
		t.Helper()
		deadline := time.After(time.Minute)
		for {
			if s, err := tables.Service("grove", "plum"); err == nil && s != nil && s.Declares(port) {
				return
			}
			select {
			case <-watch.C:
			case <-deadline:
				t.Fatalf("port %d has not arrived", port)
			}
		}
	}
	declares(80)
	if _, err := writer.Append(ctx, row(81), time.Now()); err != nil {
		t.Fatal(err)
	}
	declares(81)
	stop()
	for range 4 {
		if err := <-running; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("a part ended with %v", err)
		}
	}
}
