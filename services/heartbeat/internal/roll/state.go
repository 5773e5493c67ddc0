package roll

import (
	"slices"
	"time"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// State is how a process is, as far as one can hear. `weft status` has the
// same words.
type State string

// The states, from the most to the least alive.
const (
	Live    State = "live"
	Stale   State = "stale"   // alive, but what it serves is old
	Leaving State = "leaving" // said that it stops
	Silent  State = "silent"  // said nothing for a while; it may be dead or cut off
)

var states = [...]State{Live, Stale, Leaving, Silent}

func order(s State) int { return slices.Index(states[:], s) }

// state judges a presence that was heard so long ago.
func state(p *busv1.Presence, ago time.Duration, limits Limits) State {
	switch {
	case p.GetLeaving():
		return Leaving
	case ago >= limits.Silent:
		return Silent
	case p.GetStale():
		return Stale
	default:
		return Live
	}
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
	State   State
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
		for _, s := range states {
			counts[Group{service, s}] += 0
		}
		counts[Group{service, state(e.presence, now.Sub(e.heard), r.limits)}]++
	}
	return counts
}
