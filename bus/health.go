package bus

import (
	"time"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Health is how a process is, as far as one can hear.
type Health string

// The healths, from the most to the least alive.
const (
	Live    Health = "live"
	Stale   Health = "stale"   // alive, but what it serves is old
	Leaving Health = "leaving" // said that it stops
	Silent  Health = "silent"  // said nothing for a while; it may be dead or cut off
)

// Healths lists them in that order.
var Healths = [...]Health{Live, Stale, Leaving, Silent}

// SilentAfter is three presences missed.
const SilentAfter = 3 * defaultAnnounce

// HealthOf judges a presence that was heard so long ago.
func HealthOf(p *busv1.Presence, ago time.Duration) Health {
	switch {
	case p.GetLeaving():
		return Leaving
	case ago >= SilentAfter:
		return Silent
	case p.GetStale():
		return Stale
	default:
		return Live
	}
}
