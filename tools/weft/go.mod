module github.com/weftmesh/weft/tools/weft

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/linkerd/linkerd2-proxy-api v0.20.0
	github.com/nats-io/nats-server/v2 v2.15.2
	github.com/spf13/cobra v1.10.2
	github.com/weftmesh/weft/bus v0.0.0
	github.com/weftmesh/weft/proto v0.0.0
	github.com/weftmesh/weft/services/kit v0.0.0
	go.opentelemetry.io/proto/otlp v1.11.0
	golang.org/x/net v0.62.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
	sigs.k8s.io/yaml v1.6.0
)

require (
	github.com/evanphx/json-patch/v5 v5.9.11 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.74.0 // indirect
	github.com/spf13/pflag v1.0.10 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260928230214-8a89bd6388cc // indirect
	k8s.io/api v0.37.2 // indirect
	k8s.io/apimachinery v0.37.2 // indirect
)

replace (
	github.com/weftmesh/weft/bus => ../../bus
	github.com/weftmesh/weft/proto => ../../proto
	github.com/weftmesh/weft/services/kit => ../../services/kit
)
