module github.com/weftmesh/weft/services/kit

go 1.26.0

require (
	go.opentelemetry.io/otel v1.47.0
	go.opentelemetry.io/otel/trace v1.47.0
	go.opentelemetry.io/otel/sdk v1.47.0
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc v1.47.0
	github.com/prometheus/client_golang v1.25.0
	github.com/google/go-cmp v0.7.0
	go.uber.org/goleak v1.3.0
)
