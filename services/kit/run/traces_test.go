package run_test

import (
	"context"
	"net"
	"syscall"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/weftmesh/weft/services/kit/run"
)

// collecting is an OTLP collector that hands on what it gets.
type collecting struct {
	collector.UnimplementedTraceServiceServer
	got chan *tracepb.ResourceSpans
}

func (c *collecting) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, r := range req.GetResourceSpans() {
		c.got <- r
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func TestProcessExportsTracesWhenAsked(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	spans := &collecting{got: make(chan *tracepb.ResourceSpans, 10)}
	srv := grpc.NewServer()
	collector.RegisterTraceServiceServer(srv, spans)
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(srv.Stop)
	endpoint := "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + lis.Addr().String()

	t.Run("asked", func(t *testing.T) {
		// The batch waits 5 s by default: what arrives was flushed by the stop.
		c := start(t, []string{endpoint}, "-obs.log-format=json")
		c.until(t, "started")
		c.signal(t, syscall.SIGTERM)
		if got := c.wait(t); got != run.ExitStopped {
			t.Errorf("exit code = %d, want %d", got, run.ExitStopped)
		}
		select {
		case r := <-spans.got:
			attrs := make(map[string]string)
			for _, a := range r.GetResource().GetAttributes() {
				attrs[a.GetKey()] = a.GetValue().GetStringValue()
			}
			if attrs["service.name"] != "weft-sample" {
				t.Errorf("service.name = %q, want weft-sample", attrs["service.name"])
			}
			if got := r.GetScopeSpans()[0].GetSpans()[0].GetName(); got != "work" {
				t.Errorf("span = %q, want work", got)
			}
		default:
			t.Errorf("no span arrived; log:\n%s", c.log.String())
		}
	})
	t.Run("disabled", func(t *testing.T) {
		c := start(t, []string{endpoint, "OTEL_SDK_DISABLED=true"}, "-obs.log-format=json")
		c.until(t, "started")
		c.signal(t, syscall.SIGTERM)
		c.wait(t)
		select {
		case r := <-spans.got:
			t.Errorf("got %v from a process whose SDK is disabled", r)
		default:
		}
	})
	t.Run("unknown exporter", func(t *testing.T) {
		c := start(t, []string{"OTEL_TRACES_EXPORTER=carrier-pigeon"})
		if got := c.wait(t); got != run.ExitConfig {
			t.Errorf("exit code = %d, want %d", got, run.ExitConfig)
		}
	})
	t.Run("collector away", func(t *testing.T) {
		c := start(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"}, "-obs.log-format=json")
		c.until(t, "started")
		c.signal(t, syscall.SIGTERM)
		if got := c.wait(t); got != run.ExitStopped {
			t.Errorf("exit code = %d, want %d: spans are lost, the process is well", got, run.ExitStopped)
		}
	})
}
