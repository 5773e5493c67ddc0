package spans

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
)

func at(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)) }

func export(t *testing.T, r *Receiver, service string, spans ...*tracev1.Span) {
	t.Helper()
	name := &commonv1.KeyValue{Key: "service.name", Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: service}}}
	_, err := r.Export(t.Context(), &collector.ExportTraceServiceRequest{ResourceSpans: []*tracev1.ResourceSpans{{
		Resource:   &resourcev1.Resource{Attributes: []*commonv1.KeyValue{name}},
		ScopeSpans: []*tracev1.ScopeSpans{{Spans: spans}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
}

func span(trace, id, parent byte, name string, from, to int) *tracev1.Span {
	s := &tracev1.Span{
		TraceId: []byte{trace}, SpanId: []byte{id}, Name: name,
		StartTimeUnixNano: uint64(at(from).UnixNano()), EndTimeUnixNano: uint64(at(to).UnixNano()),
	}
	if parent != 0 {
		s.ParentSpanId = []byte{parent}
	}
	return s
}

func TestTreeShowsOneChange(t *testing.T) {
	r := &Receiver{}
	export(t, r, "watcher", span(1, 1, 0, "old", 0, 1), span(2, 1, 0, "kubernetes event", 10, 14), span(2, 2, 1, "bus publish", 12, 13))
	export(t, r, "destination", span(1, 9, 1, "bus apply", 1, 2), span(2, 3, 2, "bus apply", 14, 15), span(2, 4, 3, "stream write", 15, 16))
	export(t, r, "watcher", span(3, 1, 0, "newest, but nobody derived from it", 50, 51))
	want := `trace 02
watcher: kubernetes event                                +0s         4ms
  watcher: bus publish                                   +2ms        1ms
    destination: bus apply                               +4ms        1ms
      destination: stream write                          +5ms        1ms
`
	if diff := cmp.Diff(want, Tree(r.Latest("watcher", "destination"))); diff != "" {
		t.Errorf("tree differs (-want +got):\n%s", diff)
	}
	if got := r.Latest("watcher", "policy"); got != nil {
		t.Errorf("Latest found %v for a service that sent nothing", got)
	}
}

func TestTreeOfACircleEnds(t *testing.T) {
	spans := []Span{{Trace: "1", ID: "a", Parent: "b", Start: at(0)}, {Trace: "1", ID: "b", Parent: "a", Start: at(1)}, {Trace: "1", ID: "c", Parent: "c", Start: at(2)}}
	if Tree(spans) == "" {
		t.Error("nothing was drawn")
	}
}

func TestReceiverForgetsTheOldest(t *testing.T) {
	r := &Receiver{}
	for i := range 3 {
		many := make([]*tracev1.Span, 0, most/2)
		for range most / 2 {
			many = append(many, span(byte(i), 1, 0, fmt.Sprint(i), 0, 1))
		}
		export(t, r, "watcher", many...)
	}
	if len(r.spans) != most || r.spans[0].Name != "1" {
		t.Errorf("kept %d from %q on, want %d from the second", len(r.spans), r.spans[0].Name, most)
	}
}
