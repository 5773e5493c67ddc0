module github.com/weftmesh/weft/services/heartbeat

go 1.26.0

require (
	github.com/weftmesh/weft/proto v0.0.0
	github.com/weftmesh/weft/bus v0.0.0
	github.com/weftmesh/weft/services/kit v0.0.0
	github.com/prometheus/client_golang v1.25.0
	google.golang.org/protobuf v1.36.12
	github.com/google/go-cmp v0.7.0
)

replace (
	github.com/weftmesh/weft/proto => ../../proto
	github.com/weftmesh/weft/bus => ../../bus
	github.com/weftmesh/weft/services/kit => ../../services/kit
)
