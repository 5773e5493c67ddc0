module github.com/weftmesh/weft/tools/weft

go 1.26.0

require (
	github.com/weftmesh/weft/proto v0.0.0
	github.com/weftmesh/weft/bus v0.0.0
	github.com/weftmesh/weft/services/kit v0.0.0
	github.com/nats-io/nats-server/v2 v2.15.2
	github.com/spf13/cobra v1.10.2
	go.opentelemetry.io/proto/otlp v1.10.0
	google.golang.org/grpc v1.85.0
	github.com/linkerd/linkerd2-proxy-api v0.20.0
	google.golang.org/protobuf v1.36.12
	sigs.k8s.io/yaml v1.6.0
	golang.org/x/net v0.62.0
	github.com/google/go-cmp v0.7.0
)

replace (
	github.com/weftmesh/weft/proto => ../../proto
	github.com/weftmesh/weft/bus => ../../bus
	github.com/weftmesh/weft/services/kit => ../../services/kit
)
