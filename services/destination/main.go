// Command destination tells each proxy which addresses a destination has now.
//
// It reads the mesh's log from the bus and keeps the rows in memory; it never
// talks to Kubernetes and stores nothing, so any replica may be lost at any time.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/destination/internal/feed"
	"github.com/weftmesh/weft/services/destination/internal/link"
	"github.com/weftmesh/weft/services/destination/internal/serve"
	"github.com/weftmesh/weft/services/destination/internal/table"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/rpc"
	"github.com/weftmesh/weft/services/kit/run"
)

const name = "destination"

func main() { run.Main(name, wire) }

// wire builds the service. Nothing runs, and nothing but the listeners is opened,
// until it has returned.
func wire(ctx context.Context, s *run.Service) error {
	limitGarbage(os.Getenv)
	cfg, err := conf.Load(defaults())
	if err != nil {
		return err
	}
	answers, err := cfg.derive()
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
	lis, err := run.Listen(cfg.Listen.String())
	if err != nil {
		return err
	}

	log := bus.NewReader(events, bus.ReaderConfig{Registry: s.Metrics()})
	tables := table.New()
	s.Metrics().MustRegister(rows{tables})
	count := feed.NewMetrics(s.Metrics())
	linked := link.New(cfg.Links, tables, link.Dial(name, s.Metrics()), count, s.Metrics())
	api := serve.New(tables, linked, answers, cfg.Serve, s.Metrics())
	// No cap on a connection's streams: all that a proxy has are on one, and what
	// is beyond a cap hangs (complaints row A21). The API counts, and refuses.
	server := rpc.NewServer(s.Metrics(), grpc.MaxConcurrentStreams(0), grpc.ForceServerCodecV2(serve.NewCodec()))
	api.Register(server)
	serve.NewExplain(api, log).Register(server)
	me := bus.NewPresence(name, build.Version(), events.Cluster())

	s.Part("bus", events.Run)
	s.Part("log", log.Run)
	s.Part("feed", feed.New(log, tables, count).Run)
	s.Part("links", linked.Run)
	s.Part("presence", func(ctx context.Context) error {
		return bus.Announce(ctx, events, 0, func() *busv1.Presence {
			p := bus.FrontPresence(me, log.Status(), len(s.NotReady()) == 0)
			p.Links = linked.States()
			return p
		})
	})
	s.Part("api", func(ctx context.Context) error {
		// Streams end before the server waits for them.
		defer context.AfterFunc(ctx, api.Stop)()
		slog.InfoContext(ctx, "api listening", obs.Addr(lis.Addr().String()))
		return rpc.Serve(ctx, server, lis)
	})
	s.Ready("log", log.Synced)
	s.Ready("tables", tables.Synced)
	s.Ready("links", linked.Settled)
	return nil
}

// rows shows the sizes of the tables.
type rows struct{ tables *table.Table }

var rowsDesc = prometheus.NewDesc("weft_destination_rows", "Rows held, by table.", []string{"table"}, nil)

// Describe implements prometheus.Collector.
func (r rows) Describe(ch chan<- *prometheus.Desc) { ch <- rowsDesc }

// Collect implements prometheus.Collector.
func (r rows) Collect(ch chan<- prometheus.Metric) {
	for name, n := range r.tables.Sizes() {
		ch <- prometheus.MustNewConstMetric(rowsDesc, prometheus.GaugeValue, float64(n), name)
	}
}
