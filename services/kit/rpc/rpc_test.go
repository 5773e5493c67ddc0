package rpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/services/kit/rpc"
)

// api is a gRPC service as ours are: short calls and streams that never end.
type api struct {
	grpc_health_v1.UnimplementedHealthServer
	started chan struct{} // gets one for each stream
	stuck   bool          // streams do not look at their context
	release chan struct{} // ends stuck ones
}

func (a *api) Check(_ context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if r.GetService() == "panic" {
		panic("secret of another caller")
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func (a *api) Watch(r *grpc_health_v1.HealthCheckRequest, s grpc_health_v1.Health_WatchServer) error {
	if r.GetService() == "panic" {
		panic("secret of another caller")
	}
	a.started <- struct{}{}
	if a.stuck {
		<-a.release
		return nil
	}
	<-s.Context().Done()
	return s.Context().Err()
}

// serving is a running server and a client of it.
type serving struct {
	api    *api
	reg    *prometheus.Registry
	client grpc_health_v1.HealthClient
	ended  chan error // what Serve returned
}

func serve(ctx context.Context, t *testing.T, a *api, opts ...grpc.ServerOption) *serving {
	t.Helper()
	a.started, a.release = make(chan struct{}, 10), make(chan struct{})
	s := &serving{api: a, reg: prometheus.NewRegistry(), ended: make(chan error, 1)}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := rpc.NewServer(s.reg, opts...)
	grpc_health_v1.RegisterHealthServer(srv, a)
	go func() { s.ended <- rpc.Serve(ctx, srv, lis) }()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s.client = grpc_health_v1.NewHealthClient(conn)
	return s
}

// watch opens a stream and waits until its handler runs.
func (s *serving) watch(t *testing.T) grpc.ServerStreamingClient[grpc_health_v1.HealthCheckResponse] {
	t.Helper()
	stream, err := s.client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	<-s.api.started
	return stream
}

func TestPanicIsOneCallersInternalError(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	s := serve(ctx, t, &api{})
	req := &grpc_health_v1.HealthCheckRequest{Service: "panic"}
	_, err := s.client.Check(ctx, req)
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "secret") {
		t.Errorf("Check() = %v, want Internal without the panic's text", err)
	}
	stream, err := s.client.Watch(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Internal {
		t.Errorf("Recv() = %v, want Internal", err)
	}
	if _, err := s.client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("Check() after the panics = %v", err)
	}
	stop()
	if err := <-s.ended; err != nil {
		t.Errorf("Serve() = %v", err)
	}
	want := `
		# HELP weft_rpc_panics_total Calls that ended because their handler panicked.
		# TYPE weft_rpc_panics_total counter
		weft_rpc_panics_total 2
		# HELP grpc_server_handled_total Total number of RPCs completed on the server, regardless of success or failure.
		# TYPE grpc_server_handled_total counter
		grpc_server_handled_total{grpc_code="Internal",grpc_method="Check",grpc_service="grpc.health.v1.Health",grpc_type="unary"} 1
		grpc_server_handled_total{grpc_code="Internal",grpc_method="Watch",grpc_service="grpc.health.v1.Health",grpc_type="server_stream"} 1
		grpc_server_handled_total{grpc_code="OK",grpc_method="Check",grpc_service="grpc.health.v1.Health",grpc_type="unary"} 1
	`
	if err := testutil.GatherAndCompare(s.reg, strings.NewReader(want), "weft_rpc_panics_total", "grpc_server_handled_total"); err != nil {
		t.Error(err)
	}
}

// TestCallsAreSpansWhereTracesAreExported: of a stream and of a short call, as
// parts of the caller's trace.
func TestCallsAreSpansWhereTracesAreExported(t *testing.T) {
	before, propagator := otel.GetTracerProvider(), otel.GetTextMapPropagator()
	spans := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	otel.SetTextMapPropagator(propagation.TraceContext{})
	t.Cleanup(func() {
		otel.SetTracerProvider(before)
		otel.SetTextMapPropagator(propagator)
	})
	ctx, stop := context.WithCancel(t.Context())
	s := serve(ctx, t, &api{}, rpc.Draining(ctx))
	const id = "0af7651916cd43dd8448eb211c80319c"
	traced := metadata.AppendToOutgoingContext(ctx, "traceparent", "00-"+id+"-b7ad6b7169203331-01")
	if _, err := s.client.Check(traced, &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	s.watch(t)
	stop()
	if err := <-s.ended; err != nil {
		t.Errorf("Serve() = %v", err)
	}
	got := make(map[string]string)
	for _, span := range spans.Ended() {
		got[span.Name()] = span.SpanContext().TraceID().String()
	}
	if got["grpc.health.v1.Health/Check"] != id || got["grpc.health.v1.Health/Watch"] == "" {
		t.Errorf("spans and their traces: %v, want Check of %s, and Watch", got, id)
	}
}

func TestDrainingEndsStreamsAsUnavailable(t *testing.T) {
	// A server that waited for the drain time would do so every time; one on a machine
	// that is too busy will not.
	soonest := time.Hour
	for range 10 {
		ctx, stop := context.WithCancel(t.Context())
		s := serve(ctx, t, &api{}, rpc.Draining(ctx))
		stream := s.watch(t)
		begin := time.Now()
		stop()
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the server is stopping") {
			t.Errorf("Recv() = %v, want Unavailable and the reason", err)
		}
		if err := <-s.ended; err != nil {
			t.Errorf("Serve() = %v", err)
		}
		if soonest = min(soonest, time.Since(begin)); soonest < 2*time.Second {
			return
		}
	}
	t.Errorf("stopping took %s though every stream ended", soonest)
}

func TestServeCutsOffStreamsThatDoNotEnd(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	s := serve(ctx, t, &api{}) // without Draining: streams run until they are cut
	stream := s.watch(t)
	begin := time.Now()
	stop()
	if _, err := stream.Recv(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("Recv() = %v, want the stream cut off", err)
	}
	if err := <-s.ended; err != nil {
		t.Errorf("Serve() = %v", err)
	}
	if took := time.Since(begin); took < time.Second || took > 30*time.Second {
		t.Errorf("cut off after %s, want the drain time", took)
	}
}

func TestRequestsAreBounded(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s := serve(ctx, t, &api{})
	_, err := s.client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: strings.Repeat("a", 65<<10)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message of 65 KiB: %v, want ResourceExhausted", err)
	}
	big := metadata.AppendToOutgoingContext(ctx, "x-big", strings.Repeat("a", 9<<10))
	if _, err := s.client.Check(big, &grpc_health_v1.HealthCheckRequest{}); err == nil {
		t.Error("a header of 9 KiB was accepted")
	}
	if _, err := s.client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: strings.Repeat("a", 60<<10)}); err != nil {
		t.Errorf("a message of 60 KiB: %v", err)
	}
}

func TestOptionsChangeTheBounds(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cfg := rpc.Config{MaxStreams: 1, MaxRecv: 128 << 10}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	s := serve(ctx, t, &api{}, cfg.Options()...)
	if _, err := s.client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: strings.Repeat("a", 100<<10)}); err != nil {
		t.Errorf("a message of 100 KiB: %v", err)
	}
	if err := (rpc.Config{MaxRecv: -1}).Check(); err == nil {
		t.Error("a negative MaxRecv was accepted")
	}
}

func TestTwoServersShareOneRegistry(t *testing.T) {
	reg := prometheus.NewRegistry()
	rpc.NewServer(reg)
	rpc.NewServer(reg) // must not panic
}

func TestServeReportsABrokenListener(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := lis.Close(); err != nil {
		t.Fatal(err)
	}
	if err := rpc.Serve(t.Context(), rpc.NewServer(prometheus.NewRegistry()), lis); err == nil {
		t.Error("Serve() on a closed listener = nil")
	}
}
