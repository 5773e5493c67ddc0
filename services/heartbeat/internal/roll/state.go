package roll

import (
	"slices"
	"time"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// order ranks a process: the most alive first.
func order(p *busv1.Presence, ago time.Duration) int {
	return slices.Index(bus.Healths[:], bus.HealthOf(p, ago))
}

// services are the names a metric may show. What calls itself anything else is
// counted as "other": the bus is not the place to trust with our label values.
var services = [...]string{
	"destination", "heartbeat", "identity", "injector", "mirror", "policy", "watcher",
}

const other = "other"

// Group is a set of processes that a metric counts.
type Group struct {
	Service string
	Health  bus.Health
}

// Count counts the roll as of now. Every state of a service that has a process
// is there, with 0 if need be, so that a graph falls to zero instead of ending.
func (r *Roll) Count(now time.Time) map[Group]int {
	counts := make(map[Group]int)
	for _, e := range r.byName {
		service := e.presence.GetService()
		if !slices.Contains(services[:], service) {
			service = other
		}
		for _, s := range bus.Healths {
			counts[Group{service, s}] += 0
		}
		counts[Group{service, bus.HealthOf(e.presence, now.Sub(e.heard))}]++
	}
	return counts
}
