module github.com/weftmesh/weft/proxy

go 1.26.0

require (
	github.com/weftmesh/weft/services/kit v0.0.0
	github.com/linkerd/linkerd2-proxy-api v0.20.0
	google.golang.org/grpc v1.85.0
	github.com/prometheus/client_golang v1.25.0
	google.golang.org/protobuf v1.36.12
	golang.org/x/net v0.62.0
	golang.org/x/sys v0.47.0
	go.opentelemetry.io/otel v1.47.0
	go.opentelemetry.io/otel/trace v1.47.0
	github.com/google/go-cmp v0.7.0
	go.uber.org/goleak v1.3.0
)

replace (
	github.com/weftmesh/weft/services/kit => ../services/kit
)
