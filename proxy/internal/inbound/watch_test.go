package inbound

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	tappb "github.com/linkerd/linkerd2-proxy-api/go/tap"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/proxy/internal/accesslog"
	"github.com/weftmesh/weft/proxy/internal/span"
	"github.com/weftmesh/weft/proxy/internal/tap"
	"github.com/weftmesh/weft/proxy/internal/tap/taptest"
)

// watching changes a world that has not begun.
func (w *world) watching(change func(*Deps)) *world {
	change(&w.in.deps)
	w.in.stack, w.in.named = w.in.layers(), w.in.gatewayLayers()
	return w
}

// answers gives gRPC statuses and such.
var answers = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	switch r.URL.Path {
	case "/grpc":
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "5")
	case "/break":
		_, _ = io.WriteString(w, "some")
		panic(http.ErrAbortHandler)
	default:
		w.Header().Set("X-Parent", r.Header.Get("traceparent"))
		_, _ = io.WriteString(w, "twelve bytes")
	}
})

func TestTap(t *testing.T) {
	at := app(t, answers)
	registry := tap.New()
	w := newWorld(t).redirectTo(at).watching(func(d *Deps) { d.Tap = registry }).run()
	w.allow(at.Port(), detectServer(onlyIdentity(alice)))
	events := taptest.Observe(t, registry, w.ca.Local(t, server), w.ca.Local(t, taptest.Client), 3)

	friend, stranger := w.ca.Local(t, alice), w.ca.Local(t, mallet)
	c := client(t, true, func() (net.Conn, error) { return w.tls(friend) })
	get(t, client(t, true, func() (net.Conn, error) { return w.tls(stranger) }), "http://web/denied")
	get(t, c, "http://web/plain?x=1")
	get(t, c, "http://web/grpc", "content-type", "application/grpc")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web/break", nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := c.Do(req); err == nil {
		_, _ = io.ReadAll(res.Body)
		_ = res.Body.Close()
	}
	got := events()
	if len(got) < 8 { // the application may have broken off before its head went out
		t.Fatalf("%d events, want 8 or 9: %v", len(got), got)
	}
	init := got[0]
	if init.GetHttp().GetRequestInit().GetPath() != "/plain" || init.GetSourceMeta().GetLabels()["client_id"] != alice || init.GetSourceMeta().GetLabels()["tls"] != "true" ||
		init.GetProxyDirection() != tappb.TapEvent_INBOUND || init.GetDestination().GetPort() != uint32(at.Port()) || init.GetSource().GetPort() == 0 {
		t.Errorf("%v", init)
	}
	if got[1].GetHttp().GetResponseInit().GetHttpStatus() != 200 || got[2].GetHttp().GetResponseEnd().GetEos() == nil || got[2].GetHttp().GetResponseEnd().GetEos().GetEnd() != nil {
		t.Errorf("%v %v", got[1], got[2])
	}
	if end := got[5].GetHttp().GetResponseEnd(); end.GetEos().GetGrpcStatusCode() != 5 {
		t.Errorf("gRPC: %v", end)
	}
	if end := got[len(got)-1].GetHttp().GetResponseEnd(); end.GetEos().GetResetErrorCode() == 0 {
		t.Errorf("broken: %v", end)
	}
}

// lines collects what is written.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, strings.SplitAfter(strings.TrimSuffix(string(p), "\n"), "\n")...)
	return len(p), nil
}

func (l *lines) get() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

func TestAccessLog(t *testing.T) {
	at := app(t, answers)
	var out lines
	access := accesslog.New(&out, accesslog.JSON, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = access.Run(ctx) }()
	w := newWorld(t).redirectTo(at).watching(func(d *Deps) { d.Access = access }).run()
	w.allow(at.Port(), detectServer(onlyIdentity(alice)))
	friend, stranger := w.ca.Local(t, alice), w.ca.Local(t, mallet)
	get(t, client(t, false, func() (net.Conn, error) { return w.tls(friend) }), "http://web.shop/books?x=1", "x-request-id", "r-1", "user-agent", "me")
	get(t, client(t, true, func() (net.Conn, error) { return w.tls(stranger) }), "http://web.shop/books")
	eventually(t, "two lines", func() bool { return len(out.get()) == 2 })
	cancel()
	<-done
	var first, second map[string]any
	if err := json.Unmarshal([]byte(out.get()[0]), &first); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out.get()[1]), &second); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"client.id": alice, "method": "GET", "uri": "/books?x=1", "version": "HTTP/1.1", "status": 200.0, "request_bytes": "", "response_bytes": "12",
		"trace_id": "r-1", "user_agent": "me", "host": "web.shop",
	} {
		if first[name] != want {
			t.Errorf("%s: %v, want %v", name, first[name], want)
		}
	}
	if second["status"] != 403.0 || second["uri"] != "http://web.shop/books" || second["version"] != "HTTP/2.0" || second["client.id"] != mallet {
		t.Errorf("denied: %v", second)
	}
}

// sink is a collector without a network.
type sink struct {
	grpc.ClientConnInterface
	mu    sync.Mutex
	spans []*tracepb.Span
}

func (s *sink) Invoke(_ context.Context, _ string, in, _ any, _ ...grpc.CallOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range proto.CloneOf(in.(*tracepb.TracesData)).GetResourceSpans() {
		s.spans = append(s.spans, r.GetScopeSpans()[0].GetSpans()...)
	}
	return nil
}

func TestSpans(t *testing.T) {
	at := app(t, answers)
	s := new(sink)
	spans := span.New(s, nil, span.Told{}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld(t, open).redirectTo(at).watching(func(d *Deps) { d.Spans = spans }).run()
	c := client(t, false, func() (net.Conn, error) { return w.dialPlain(), nil })
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	res, _ := get(t, c, "http://web/books?x=1", "traceparent", parent)
	if got := res.Header.Get("X-Parent"); got == parent || !strings.HasPrefix(got, parent[:36]) {
		t.Errorf("the application saw %q", got)
	}
	if res, _ := get(t, c, "http://web/books"); res.Header.Get("X-Parent") != "" {
		t.Error("a trace was begun")
	}
	cancel()
	if err := spans.Run(ctx); err != nil { // what waits is sent
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spans) != 2 {
		t.Fatalf("%d spans, want 2: %v", len(s.spans), s.spans)
	}
	inner, outer := s.spans[0], s.spans[1]
	if outer.GetKind() != tracepb.Span_SPAN_KIND_SERVER || inner.GetKind() != tracepb.Span_SPAN_KIND_CLIENT ||
		string(inner.GetParentSpanId()) != string(outer.GetSpanId()) || outer.GetName() != "/books" {
		t.Errorf("%v\n%v", outer, inner)
	}
}
