// Heartbeat knows who is alive: it hears what every process of the mesh says
// of itself on the bus, keeps it on a roll, and answers `weft status`. Nothing
// depends on it; without it the mesh works and `weft status` listens itself.
package main

import (
	"context"
	"time"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/heartbeat/internal/hear"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/run"
)

const name = "heartbeat"

type config struct {
	Announce time.Duration `help:"how often this process says that it is alive; 0 means 5s"`
	Bus      bus.Config    `help:"where the mesh's events are"`
	Obs      obs.Config    `help:"logs, metrics and traces"`
}

// Check judges the settings.
func (c config) Check() error {
	if c.Announce < 0 {
		return conf.Bad("Announce", "%s is below zero", c.Announce)
	}
	return nil
}

func main() { run.Main(name, wire) }

// wire builds the service; see run.Main.
func wire(ctx context.Context, s *run.Service) error {
	cfg, err := conf.Load(config{})
	if err != nil {
		return err
	}
	if err := obs.Attach(ctx, s, cfg.Obs); err != nil {
		return err
	}
	events, err := bus.Connect(ctx, cfg.Bus, name, s.Metrics())
	if err != nil {
		return err
	}
	hearing := hear.New(events, s.Metrics(), nil)
	self := bus.NewPresence(name, build.Version(), events.Cluster())

	s.Part("bus", events.Run)
	s.Part("hear", hearing.Run)
	s.Part("answer", hearing.Serve)
	s.Part("announce", func(ctx context.Context) error {
		return bus.Announce(ctx, events, cfg.Announce, func() *busv1.Presence {
			// It reads no log; and whoever hears this knows that the bus works.
			return bus.FrontPresence(self, bus.Status{Synced: true}, true)
		})
	})
	s.Ready("bus", hearing.Healthy)
	return nil
}
