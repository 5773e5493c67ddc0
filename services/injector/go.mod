module github.com/weftmesh/weft/services/injector

go 1.26.0

require (
	github.com/weftmesh/weft/proto v0.0.0
	github.com/weftmesh/weft/bus v0.0.0
	github.com/weftmesh/weft/services/kit v0.0.0
	k8s.io/api v0.37.2
	k8s.io/apimachinery v0.37.2
	sigs.k8s.io/yaml v1.6.0
	github.com/prometheus/client_golang v1.25.0
	github.com/google/go-cmp v0.7.0
	golang.org/x/tools v0.52.0
)

replace (
	github.com/weftmesh/weft/proto => ../../proto
	github.com/weftmesh/weft/bus => ../../bus
	github.com/weftmesh/weft/services/kit => ../../services/kit
)
