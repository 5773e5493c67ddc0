package outbound

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/door/doortest"
)

// TestAgeOfTheConfiguration: an application's connection is as old as
// the environment lets it become.
func TestAgeOfTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = 10 * time.Minute
		var cfg config.Config
		cfg.Outbound.Server.MaxConnectionAge = age
		doortest.EndsByAge(t, (&Outbound{log: slog.New(slog.DiscardHandler)}).newDoor(cfg), age)
	})
}
