// Command policy tells each proxy what its workload accepts and how to reach
// what it calls: Linkerd's inbound and outbound policy APIs. It also judges
// policies and ServiceProfiles before Kubernetes keeps them.
//
// It reads the mesh's tables from the bus and keeps them in memory; it never
// talks to Kubernetes and stores nothing, so any replica can be lost at any time.
package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/rpc"
	"github.com/weftmesh/weft/services/kit/run"
	"github.com/weftmesh/weft/services/policy/internal/feed"
	"github.com/weftmesh/weft/services/policy/internal/serve"
	"github.com/weftmesh/weft/services/policy/internal/status"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

func main() { run.Main("policy", wire) }

// wire assembles the service. Nothing runs until it has returned.
func wire(ctx context.Context, s *run.Service) error {
	cfg, err := conf.Load(defaults())
	if err != nil {
		return err
	}
	cluster, err := cfg.cluster()
	if err != nil {
		return err
	}
	if err := obs.Attach(ctx, s, cfg.Obs); err != nil {
		return err
	}
	// First, so that they answer as long as the process lives.
	if err := cfg.start(s); err != nil {
		return err
	}
	events, err := bus.Connect(ctx, cfg.Bus, s.Name(), s.Metrics())
	if err != nil {
		return fmt.Errorf("connecting to the bus: %w", err)
	}
	lis, err := run.Listen(cfg.Listen.String())
	if err != nil {
		return err
	}

	log := bus.NewReader(events, bus.ReaderConfig{})
	tables := table.New(cluster)
	api := serve.New(tables, cluster, cfg.Serve, s.Metrics())
	server := rpc.NewServer(s.Metrics(), append(cfg.RPC.Options(), serve.Options()...)...)
	api.Register(server)
	presence := bus.NewPresence(s.Name(), build.Version(), events.Cluster())
	present := func() *busv1.Presence {
		return bus.FrontPresence(presence, log.Status(), len(s.NotReady()) == 0)
	}

	s.Part("bus", events.Run)
	s.Part("log", log.Run)
	s.Part("feed", feed.New(log, tables, s.Metrics()).Run)
	wanted := status.NewSource(tables, log)
	s.Part("status", func(ctx context.Context) error { return status.Serve(ctx, events, wanted) })
	s.Part("presence", func(ctx context.Context) error { return bus.Announce(ctx, events, 0, present) })
	s.Part("api", func(ctx context.Context) error { return rpc.Serve(ctx, server, lis) })
	// Stopped before the API, so that streams end with OK and clients go elsewhere.
	s.Part("streams", api.Run)
	s.Ready("bus", log.Synced)
	s.Ready("tables", tables.Synced)
	slog.Info("serving policies", obs.Addr(lis.Addr().String()), obs.Cluster(events.Cluster()))
	return nil
}
