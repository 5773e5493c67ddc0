package obs

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/run"
)

// flushTime is the most that the last spans may take at the end of a process.
const flushTime = 3 * time.Second

// trace sets the W3C propagator, always, and a provider that exports over
// OTLP/gRPC if the standard environment asks for it. The SDK itself reads the
// rest of OTEL_… (endpoint, headers, TLS, sampler, batch sizes, attributes).
func trace(ctx context.Context, s *run.Service, getenv func(string) string) error {
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	wanted, err := wantsTraces(getenv)
	if err != nil || !wanted {
		return err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		slog.Warn("exporting traces", Error(err))
	}))
	// New connects in the background; a collector that is away costs spans, not the start.
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return fmt.Errorf("making the trace exporter: %w", err)
	}
	res, err := describe(ctx, s.Name())
	if err != nil {
		return err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	otel.SetTracerProvider(provider)
	s.Part("traces", func(ctx context.Context) error {
		<-ctx.Done()
		ctx, cancel := run.Ending(ctx, flushTime)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			slog.Warn("flushing traces", Error(err))
		}
		return nil
	})
	slog.Info("exporting traces over otlp")
	return nil
}

// describe says which process the spans are from. OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES win over our names.
func describe(ctx context.Context, name string) (*resource.Resource, error) {
	res, err := resource.New(ctx,
		resource.WithAttributes(
			attribute.String("service.name", "weft-"+name),
			attribute.String("service.namespace", "weft"),
			attribute.String("service.version", build.Version()),
		),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describing the process for traces: %w", err)
	}
	return res, nil
}

// wantsTraces decides from the environment whether to export. The OpenTelemetry
// specification would export to localhost:4317 when nothing is set; we export
// only when an endpoint or exporter is named, since most processes have no
// collector beside them.
func wantsTraces(getenv func(string) string) (bool, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	var named bool
	switch e := strings.TrimSpace(getenv("OTEL_TRACES_EXPORTER")); e {
	case "":
		named = getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	case "otlp":
		named = true
	case "none":
	default:
		return false, otelProblem("OTEL_TRACES_EXPORTER", fmt.Sprintf("%q is neither otlp nor none", e))
	}
	if !named {
		return false, nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch p := getenv(name); p {
		case "":
			continue
		case "grpc":
			return true, nil
		default:
			return false, otelProblem(name, fmt.Sprintf("%q is not supported; traces are sent over grpc", p))
		}
	}
	return true, nil
}

func otelProblem(env, text string) error {
	return &conf.Error{Problems: []conf.Problem{{Env: env, Text: text}}}
}
