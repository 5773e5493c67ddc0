module github.com/weftmesh/weft/services/policy

go 1.26.0

require (
	github.com/weftmesh/weft/proto v0.0.0
	github.com/weftmesh/weft/bus v0.0.0
	github.com/weftmesh/weft/services/kit v0.0.0
	github.com/linkerd/linkerd2-proxy-api v0.20.0
	google.golang.org/grpc v1.85.0
	github.com/grpc-ecosystem/go-grpc-middleware/v2 v2.3.4
	go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc v0.72.0
	go.opentelemetry.io/otel v1.47.0
	go.opentelemetry.io/otel/trace v1.47.0
	github.com/prometheus/client_golang v1.25.0
	google.golang.org/protobuf v1.36.12
	github.com/google/go-cmp v0.7.0
	golang.org/x/tools v0.52.0
)

replace (
	github.com/weftmesh/weft/proto => ../../proto
	github.com/weftmesh/weft/bus => ../../bus
	github.com/weftmesh/weft/services/kit => ../../services/kit
)
