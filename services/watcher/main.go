// Command watcher turns a Kubernetes cluster, or a directory of manifests, into
// the mesh's log.
//
// It is the only process that reads Kubernetes and the only one that writes the
// log. Several may run; one leads, the others hold a copy and stand by. While
// none runs, everybody else serves what they have and says how old it is.
package main

import (
	"context"
	"log/slog"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/run"
	"github.com/weftmesh/weft/services/watcher/internal/publish"
)

func main() { run.Main("watcher", wire) }

// wire builds the service. Parts start in this order and stop in reverse, so
// that the log is given up before the connection to the bus is closed.
func wire(ctx context.Context, s *run.Service) error {
	cfg, err := conf.Load(defaults())
	if err != nil {
		return err
	}
	if err := obs.Attach(ctx, s, cfg.Obs); err != nil {
		return err
	}
	src, err := newSource(cfg, s.Metrics(), slog.Default())
	if err != nil {
		return err
	}
	transport, err := bus.Connect(ctx, cfg.Bus, "watcher", s.Metrics())
	if err != nil {
		return err
	}
	reader := bus.NewReader(transport, bus.ReaderConfig{})
	writer := bus.NewWriter(transport, reader, bus.WriterConfig{})
	var publisher *publish.Publisher
	duties := newDuties(cfg, src, transport, reader, func() *publish.Publisher { return publisher }, s)
	publisher = publish.New(src, writer, reader, publish.Config{
		Registry: s.Metrics(), Unleased: cfg.Source == "dir" || !cfg.Elect, Cluster: cfg.cluster(transport.Cluster()), Wrote: duties.wrote,
	})

	s.Part("bus", transport.Run)
	s.Part("reader", reader.Run)
	s.Part("writer", writer.Run)
	kept := func() *busv1.KeptHistory { return nil }
	if cfg.History.Enabled {
		keeper := bus.NewKeeper(transport, writer, cfg.History)
		kept = keeper.Kept
		s.Part("history", keeper.Run)
	}
	s.Part("source", src.Run)
	s.Part("publisher", publisher.Run)
	s.Part("election", func(ctx context.Context) error {
		if err := publish.CatchUp(ctx, transport, reader); err != nil {
			return nil // stopping
		}
		return publisher.Elect(ctx)
	})
	duties.start(s)
	base := bus.NewPresence(s.Name(), build.Version(), transport.Cluster())
	s.Part("presence", func(ctx context.Context) error {
		return bus.Announce(ctx, transport, presenceEvery, func() *busv1.Presence {
			p := presence(base, reader.Status(), publisher, len(s.NotReady()) == 0)
			p.Unmeshed = uint32(duties.unmeshed())
			p.History = kept()
			return p
		})
	})
	s.Ready("source", synced(src))
	s.Ready("log", reader.Synced)
	return nil
}

// presence is what this process says of itself.
func presence(base *busv1.Presence, st bus.Status, p *publish.Publisher, ready bool) *busv1.Presence {
	out := bus.FrontPresence(base, st, ready)
	out.Leader = p.Leading()
	report := p.Report()
	out.SkippedTotal = uint32(report.Total)
	for _, s := range report.Skipped {
		out.Skipped = append(out.Skipped, &busv1.SkippedObject{Object: s.Object, Reason: s.Reason})
	}
	return out
}
