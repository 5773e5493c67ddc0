package span

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weftmesh/weft/proxy/internal/message"
)

const (
	trace = "0af7651916cd43dd8448eb211c80319c"
	from  = "b7ad6b7169203331"
)

func binary(t *testing.T, parts ...string) string {
	t.Helper()
	var all []byte
	for _, p := range parts {
		b, err := hex.DecodeString(p)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return base64.StdEncoding.EncodeToString(all)
}

func TestParse(t *testing.T) {
	w3c := message.Field{Name: "Traceparent", Value: "00-" + trace + "-" + from + "-01"}
	grpcBin := message.Field{Name: "grpc-trace-bin", Value: binary(t, "00", "00", trace, "01", from, "02", "01")}
	b3 := message.Fields{{Name: "X-B3-TraceId", Value: "64"}, {Name: "x-b3-spanid", Value: "0c"}, {Name: "x-b3-sampled", Value: "1"}}
	for _, tt := range []struct {
		name    string
		in      message.Fields
		ok      bool
		format  Format
		trace   string
		span    string
		sampled bool
	}{
		{"nothing", nil, false, 0, "", "", false},
		{"W3C", message.Fields{w3c}, true, W3C, trace, from, true},
		{"W3C, not sampled", message.Fields{{Name: "traceparent", Value: "00-" + trace + "-" + from + "-00"}}, true, W3C, trace, from, false},
		{"another version", message.Fields{{Name: "traceparent", Value: "01-" + trace + "-" + from + "-01"}}, false, 0, "", "", false},
		{"zeros", message.Fields{{Name: "traceparent", Value: "00-00000000000000000000000000000000-" + from + "-01"}}, false, 0, "", "", false},
		{"not hex", message.Fields{{Name: "traceparent", Value: "00-" + trace + "-zzzzzzzzzzzzzzzz-01"}}, false, 0, "", "", false},
		{"too long", message.Fields{{Name: "traceparent", Value: w3c.Value + "-x"}}, false, 0, "", "", false},
		{"gRPC", message.Fields{grpcBin}, true, B3GRPC, trace, from, true},
		{"gRPC without padding", message.Fields{{Name: "grpc-trace-bin", Value: binary(t, "00", "00", trace, "01", from, "02", "00")}}, true, B3GRPC, trace, from, false},
		{"gRPC with a field of tomorrow", message.Fields{{Name: "grpc-trace-bin", Value: binary(t, "01", "00", trace, "01", from, "02", "01", "07", "ffff")}}, true, B3GRPC, trace, from, true},
		{"gRPC cut off", message.Fields{{Name: "grpc-trace-bin", Value: binary(t, "00", "00", trace, "01")}}, false, 0, "", "", false},
		{"B3", b3, true, B3HTTP, "00000000000000000000000000000064", "000000000000000c", true},
		{"B3 without a span", b3[:1], false, 0, "", "", false},
		{"W3C comes first", append(message.Fields{grpcBin, w3c}, b3...), true, W3C, trace, from, true},
		{"a bad W3C, then B3", append(message.Fields{{Name: "traceparent", Value: "x"}}, b3...), true, B3HTTP, "00000000000000000000000000000064", "000000000000000c", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, ok := Parse(tt.in)
			if ok != tt.ok {
				t.Fatalf("found: %v, want %v", ok, tt.ok)
			}
			if !ok {
				return
			}
			got := []any{c.Format, hex.EncodeToString(c.Trace[:]), hex.EncodeToString(c.Span[:]), c.Sampled}
			if diff := cmp.Diff([]any{tt.format, tt.trace, tt.span, tt.sampled}, got); diff != "" {
				t.Error(diff)
			}
			fields := append(message.Fields(nil), tt.in...)
			next := Next()
			c.Write(&fields, next)
			again, ok := Parse(fields)
			c.Span = next
			if !ok || again != c {
				t.Errorf("after Write: %+v, want %+v", again, c)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("00-"+trace+"-"+from+"-01", "AAA=", "64", "0c")
	f.Fuzz(func(t *testing.T, w3c, bin, b3trace, b3span string) {
		fields := message.Fields{
			{Name: "traceparent", Value: w3c},
			{Name: "grpc-trace-bin", Value: bin},
			{Name: "x-b3-traceid", Value: b3trace},
			{Name: "x-b3-spanid", Value: b3span},
		}
		c, ok := Parse(fields)
		if !ok {
			return
		}
		c.Span = Next()
		c.Write(&fields, c.Span)
		if again, ok := Parse(fields); !ok || again != c {
			t.Errorf("%+v became %+v", c, again)
		}
	})
}

// collector takes spans.
type collector struct {
	mu   sync.Mutex
	got  []*tracepb.TracesData
	more chan struct{}
}

func serve(t *testing.T) (*collector, *grpc.ClientConn) {
	t.Helper()
	c := &collector{more: make(chan struct{}, 100)}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: "opentelemetry.proto.collector.trace.v1.TraceService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Export", Handler: func(_ any, _ context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := new(tracepb.TracesData)
			if err := dec(in); err != nil {
				return nil, err
			}
			c.mu.Lock()
			c.got = append(c.got, in)
			c.mu.Unlock()
			c.more <- struct{}{}
			return new(emptypb.Empty), nil
		}}},
	}, struct{}{})
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(srv.Stop)
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return c, conn
}

func TestExport(t *testing.T) {
	c, conn := serve(t)
	dropped, sent := 0, make(chan int, 10)
	told := Told{Dropped: func() { dropped++ }, Taken: func(n int) { sent <- n }}
	e := New(conn, Resource(7, time.Unix(9, 0), "pod-1", "web", map[string]string{"k8s.ns": "shop"}), told, slog.New(slog.DiscardHandler))
	e.every = 10 * time.Millisecond

	r := &message.Request{Method: "GET", Authority: "user:secret@web.shop:8080", Target: "/books?id=1", Fields: message.Fields{
		{Name: "traceparent", Value: "00-" + trace + "-" + from + "-01"}, {Name: "User-Agent", Value: "curl"}, {Name: "content-type", Value: "text/plain"},
	}}
	before := r.Fields.Get("traceparent")
	s := e.Begin(r, Client, "outbound")
	if r.Fields.Get("traceparent") == before {
		t.Error("the request was passed on with the caller's span")
	}
	s.Status(204)
	s.End()
	unsampled := &message.Request{Method: "GET", Target: "/", Fields: message.Fields{{Name: "traceparent", Value: "00-" + trace + "-" + from + "-00"}}}
	if e.Begin(unsampled, Server, "inbound") != nil || unsampled.Fields.Get("traceparent") == "00-"+trace+"-"+from+"-00" {
		t.Error("a span of a trace that is not sampled, or one that was not carried on")
	}
	if e.Begin(&message.Request{Method: "GET", Target: "/"}, Server, "inbound") != nil {
		t.Error("a trace was begun")
	}
	for range room + 3 {
		e.add(&tracepb.Span{Name: "more"})
	}
	if dropped != 4 { // the first span has a place of its own
		t.Errorf("%d spans dropped, want 4", dropped)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	<-c.more
	n := <-sent
	cancel()
	if err := <-done; err != nil || n == 0 {
		t.Fatal(n, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	span := c.got[0].GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0]
	attrs := map[string]string{}
	for _, a := range append(span.GetAttributes(), c.got[0].GetResourceSpans()[0].GetResource().GetAttributes()...) {
		attrs[a.GetKey()] = a.GetValue().GetStringValue()
		if a.GetValue().GetIntValue() != 0 {
			attrs[a.GetKey()] = time.Duration(a.GetValue().GetIntValue()).String()
		}
	}
	want := map[string]string{
		"direction": "outbound", "http.request.method": "GET", "url.scheme": "http", "url.path": "/books", "url.query": "id=1",
		"url.full": "http://REDACTED:REDACTED@web.shop:8080/books?id=1", "network.transport": "tcp", "server.address": "web.shop", "server.port": "8080",
		"user_agent.original": "curl", "http.request.header.content-type": "text/plain", "http.response.status_code": "204",
		"process.pid": "7ns", "process.start_timestamp": "9ns", "host.name": "pod-1", "service.name": "web", "k8s.ns": "shop",
	}
	if diff := cmp.Diff(want, attrs); diff != "" {
		t.Error(diff)
	}
	if hex.EncodeToString(span.GetTraceId()) != trace || hex.EncodeToString(span.GetParentSpanId()) != from || span.GetKind() != tracepb.Span_SPAN_KIND_CLIENT || span.GetName() != "/books" {
		t.Errorf("%v", span)
	}
	if span.GetFlags() != 0x301 {
		t.Errorf("flags are %#x", span.GetFlags())
	}
}

func TestNoCollectorNoSpans(t *testing.T) {
	var e *Exporter
	r := &message.Request{Fields: message.Fields{{Name: "traceparent", Value: "00-" + trace + "-" + from + "-01"}}}
	s := e.Begin(r, Server, "inbound")
	s.Status(200)
	s.End()
	if s != nil || r.Fields[0].Value != "00-"+trace+"-"+from+"-01" {
		t.Error("the request was changed")
	}
}

func TestServerOfARequest(t *testing.T) {
	for _, tt := range []struct {
		fields          message.Fields
		authority       string
		host, port, url string
	}{
		{nil, "web.shop", "web.shop", "", "http://web.shop/"},
		{message.Fields{{Name: "Host", Value: "web:80"}}, "other:1", "web", "80", "http://other:1/"},
		{message.Fields{{Name: "Host", Value: "web:80"}, {Name: "X-Forwarded-Host", Value: "shop.example:443"}}, "web:80", "shop.example", "443", "http://web:80/"},
		{message.Fields{{Name: "x-forwarded-host", Value: "a, b"}}, "web:80", "", "", "http://web:80/"},
		{nil, "user@[fd00::1]:80", "[fd00::1]", "80", "http://REDACTED@[fd00::1]:80/"},
		{nil, "a:b@web:x", "web", "", "http://REDACTED:REDACTED@web:x/"},
	} {
		r := &message.Request{Method: "GET", Authority: tt.authority, Target: "/", Fields: tt.fields}
		got := map[string]string{}
		for _, a := range attributes(r, "inbound") {
			got[a.GetKey()] = a.GetValue().GetStringValue()
		}
		if got["server.address"] != tt.host || got["server.port"] != tt.port || got["url.full"] != tt.url {
			t.Errorf("%q, %v: %q", tt.authority, tt.fields, got)
		}
	}
}
