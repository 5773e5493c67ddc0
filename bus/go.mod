module github.com/weftmesh/weft/bus

go 1.26.0

require (
	github.com/weftmesh/weft/proto v0.0.0
	google.golang.org/protobuf v1.36.12
	github.com/nats-io/nats.go v1.55.0
	github.com/nats-io/nats-server/v2 v2.15.2
	github.com/klauspost/compress v1.20.4
	go.opentelemetry.io/otel v1.47.0
	go.opentelemetry.io/otel/trace v1.47.0
	github.com/prometheus/client_golang v1.25.0
	github.com/google/go-cmp v0.7.0
	go.uber.org/goleak v1.3.0
	github.com/dchest/siphash v1.2.3
)

replace (
	github.com/weftmesh/weft/proto => ../proto
)
