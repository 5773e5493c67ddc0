// Package spans receives OpenTelemetry spans from the processes of one small
// mesh and draws a change's way through them. It keeps a bounded number in
// memory; a real installation sends its spans to a collector.
package spans

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Span is one step, as far as the drawing needs it.
type Span struct {
	Trace, ID, Parent string
	Service, Name     string
	Object            string // what changed, where the span says so
	Start, End        time.Time
}

// most is how many spans are kept; the oldest go first.
const most = 20_000

// Receiver takes spans over OTLP/gRPC. Any goroutine may call its methods.
type Receiver struct {
	collector.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans []Span
}

// Serve answers on lis until ctx ends.
func (r *Receiver) Serve(ctx context.Context, lis net.Listener) error {
	srv := grpc.NewServer()
	collector.RegisterTraceServiceServer(srv, r)
	defer context.AfterFunc(ctx, srv.Stop)()
	if err := srv.Serve(lis); err != nil && ctx.Err() == nil {
		return fmt.Errorf("receiving spans: %w", err)
	}
	return nil
}

// Export implements the OTLP trace service.
func (r *Receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, res := range req.GetResourceSpans() {
		service := "unknown"
		for _, kv := range res.GetResource().GetAttributes() {
			if kv.GetKey() == "service.name" {
				service = strings.TrimPrefix(kv.GetValue().GetStringValue(), "weft-")
			}
		}
		for _, scope := range res.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans = append(r.spans, read(service, s))
			}
		}
	}
	if over := len(r.spans) - most; over > 0 {
		r.spans = slices.Delete(r.spans, 0, over)
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func read(service string, s *tracev1.Span) Span {
	object := ""
	for _, kv := range s.GetAttributes() {
		if kv.GetKey() == "weft.object" {
			object = kv.GetValue().GetStringValue()
		}
	}
	return Span{
		Object: object,
		Trace:  hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Service: service, Name: s.GetName(),
		Start: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
	}
}

// Latest returns the spans of the newest trace that passed through every one
// of the services and reached a stream, or nil. A trace counts from its first
// span's start.
func (r *Receiver) Latest(services ...string) []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	traces := map[string][]Span{}
	for _, s := range r.spans {
		traces[s.Trace] = append(traces[s.Trace], s)
	}
	var best []Span
	for _, spans := range traces {
		slices.SortFunc(spans, func(a, b Span) int { return a.Start.Compare(b.Start) })
		if !through(spans, services) {
			continue
		}
		if best == nil || spans[0].Start.After(best[0].Start) {
			best = spans
		}
	}
	return best
}

func through(spans []Span, services []string) bool {
	if !slices.ContainsFunc(spans, func(s Span) bool { return s.Name == "stream write" }) {
		return false
	}
	for _, service := range services {
		if !slices.ContainsFunc(spans, func(s Span) bool { return s.Service == service }) {
			return false
		}
	}
	return true
}

// Tree draws spans as a tree with the time from the first one's start and the
// time that each took. A span whose parent is not there is drawn as a root.
func Tree(spans []Span) string {
	if len(spans) == 0 {
		return ""
	}
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID)) })
	known := map[string]bool{}
	for _, s := range spans {
		known[s.ID] = true
	}
	children := map[string][]Span{}
	for _, s := range spans {
		parent := s.Parent
		if !known[parent] || parent == s.ID {
			parent = ""
		}
		children[parent] = append(children[parent], s)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "trace %s\n", spans[0].Trace)
	draw(&b, children, "", 0, spans[0].Start)
	return b.String()
}

// deepest stops a drawing whose parents form a circle.
const deepest = 32

func draw(b *strings.Builder, children map[string][]Span, parent string, depth int, from time.Time) {
	if depth > deepest {
		return
	}
	for _, s := range children[parent] {
		label := strings.Repeat("  ", depth) + s.Service + ": " + s.Name
		if s.Object != "" {
			label += " " + s.Object
		}
		fmt.Fprintf(b, "%-56s +%-10s %s\n", label, round(s.Start.Sub(from)), round(s.End.Sub(s.Start)))
		draw(b, children, s.ID, depth+1, from)
	}
}

func round(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

// ServeHTTP answers any GET with the newest trace of a change that went from
// the watcher through a front-end, drawn as a tree.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	for _, front := range []string{"destination", "policy"} {
		if found := r.Latest("watcher", front); found != nil {
			_, _ = io.WriteString(w, Tree(found))
			return
		}
	}
	http.Error(w, "no change has gone from the watcher to a front-end yet", http.StatusNotFound)
}
