package config_test

import (
	"errors"
	"fmt"

	"github.com/weftmesh/weft/proxy/internal/config"
)

func ExampleParse() {
	_, err := config.Parse([]string{"LINKERD2_PROXY_INBOUND_PORTS=80-70", "LINKERD2_PROXY_INGRESS_MODE=yes"})
	if bad, ok := errors.AsType[*config.Error](err); ok {
		for _, problem := range bad.Problems[len(bad.Problems)-5:] {
			fmt.Println(problem)
		}
	}
	// Output:
	// LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS: must be set
	// LINKERD2_PROXY_INBOUND_PORTS: not a port or range: "80-70"
	// LINKERD2_PROXY_INGRESS_MODE: want true or false, got "yes"
	// LINKERD2_PROXY_POLICY_SVC_ADDR: must be set
	// LINKERD2_PROXY_POLICY_WORKLOAD: must be set
}
