package outbound

import (
	"fmt"
	"slices"

	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// settings are what the annotations of a Service or an EgressNetwork say (§9.6).
type settings struct {
	opaque    derive.Ports
	accrual   *accrual
	penalty   *penalty
	retry     *retry
	grpcRetry *retry
	timeouts  timeouts
}

// readSettings reads annotations and says in words what is wrong with them; what
// is wrong is left out.
func readSettings(c derive.Cluster, annotations map[string]string) (settings, []string) {
	s := settings{opaque: c.OpaquePorts}
	var problems []string
	// An empty list means no opaque ports, not the default ones (§11.8).
	if list, ok := annotations["config.linkerd.io/opaque-ports"]; ok {
		ports, err := derive.ParsePorts(list)
		if err != nil {
			problems = append(problems, fmt.Sprintf("config.linkerd.io/opaque-ports: %v", err))
		}
		s.opaque = ports
	}
	a := reader{values: annotations}
	s.accrual = a.accrual()
	problems = append(problems, a.take()...)
	// Only the unified breaker waits as long as a server asks. A mistake in this
	// switch leaves the breaker on.
	if s.accrual != nil && s.accrual.unified {
		s.accrual.honourRetryAfter = a.boolean(balancerAlpha + "failure-accrual-honor-retry-after")
		problems = append(problems, a.take()...)
	}
	s.penalty = a.penalty()
	problems = append(problems, a.take()...)
	s.retry = a.retry(false)
	wrong := a.take()
	s.grpcRetry = a.retry(true)
	for _, p := range a.take() {
		if !slices.Contains(wrong, p) { // both read the limit
			wrong = append(wrong, p)
		}
	}
	problems = append(problems, wrong...)
	s.timeouts = a.timeouts()
	return s, append(problems, a.take()...)
}
