package bus_test

import (
	"testing"
	"time"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

func TestHealthOf(t *testing.T) {
	stale, leaving := &busv1.Presence{Stale: true}, &busv1.Presence{Stale: true, Leaving: true}
	for _, c := range []struct {
		name string
		p    *busv1.Presence
		ago  time.Duration
		want bus.Health
	}{
		{"nothing is known", nil, 0, bus.Live},
		{"two words missed", &busv1.Presence{}, 15*time.Second - 1, bus.Live},
		{"three words missed", &busv1.Presence{}, 15 * time.Second, bus.Silent},
		{"from a clock that is ahead", &busv1.Presence{}, -time.Hour, bus.Live},
		{"old state", stale, 0, bus.Stale},
		{"silence outweighs old state", stale, time.Minute, bus.Silent},
		{"a farewell outweighs silence", leaving, time.Hour, bus.Leaving},
	} {
		if got := bus.HealthOf(c.p, c.ago); got != c.want {
			t.Errorf("%s: HealthOf() = %q, want %q", c.name, got, c.want)
		}
	}
}
