// Command mirror makes another cluster's exported services services of this one.
//
// It reads the other cluster's log over a linked bus and writes copies into this
// cluster: into Kubernetes, or into a directory that a watcher reads. It keeps
// nothing; a new process finds its copies by their labels or file names.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/run"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/feed"
	"github.com/weftmesh/weft/services/mirror/internal/probe"
	"github.com/weftmesh/weft/services/mirror/internal/reconcile"
)

func main() { run.Main("mirror", wire) }

// wire assembles the service.
func wire(ctx context.Context, s *run.Service) error {
	cfg, err := conf.Load(defaults())
	if err != nil {
		return err
	}
	cfg, from, err := follow(ctx, cfg)
	if err != nil {
		return err
	}
	rules, err := cfg.rules()
	if err != nil {
		return err
	}
	out, err := openSink(cfg)
	if err != nil {
		return err
	}
	if cfg.Unlink {
		// The one part: when it is done the process ends, with 0 if all went well.
		slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
		s.Part("unlink", func(ctx context.Context) error { return unlink(ctx, out, cfg.ClusterName) })
		return nil
	}
	if err := obs.Attach(ctx, s, cfg.Obs); err != nil {
		return err
	}
	remote, err := bus.Connect(ctx, cfg.remote(), s.Name(), s.Metrics())
	if err != nil {
		return err
	}
	reader := bus.NewReader(remote, bus.ReaderConfig{Registry: s.Metrics(), Tables: feed.Tables()})
	there := feed.New(reader, rules)
	ask := probe.New(cfg.ClusterName, nil, there.Look, s.Metrics())
	loop := reconcile.New(there, cfg.links(rules, from, there, ask), out, reconcile.Config{}, s.Metrics())

	s.Part("remote bus", remote.Run)
	s.Part("remote log", reader.Run)
	if err := announce(ctx, s, cfg, linkState(cfg.ClusterName, remote, reader)); err != nil {
		return err
	}
	s.Part("feed", there.Run)
	s.Part("probe", ask.Run)
	s.Part("reconcile", loop.Run)
	s.Ready("remote log", reader.Synced)
	return nil
}

// unlink removes every copy of the cluster, and it from federated services.
func unlink(ctx context.Context, out sink, cluster string) error {
	var done reconcile.Done
	var err error
	if cluster != "" {
		done, err = out.Apply(ctx, nil)
	}
	left, joinErr := out.Join(ctx, nil)
	slog.Info("copies removed", obs.Cluster(cluster), slog.Int("deleted", done.Deleted+left.Deleted), slog.Int("left", left.Updated))
	return errors.Join(err, joinErr)
}

// presenceEvery is how often a process says that it is alive.
const presenceEvery = 2 * time.Second

// requestTimeout bounds one request to the API server.
const requestTimeout = 15 * time.Second

// standing is how this process stands to the other cluster's log.
type standing func() (bus.Status, *busv1.LinkState)

func linkState(cluster string, remote bus.Transport, reader *bus.Reader) standing {
	return func() (bus.Status, *busv1.LinkState) {
		st := reader.Status()
		l := &busv1.LinkState{
			Cluster: cluster, Connected: remote.Connected(), Known: st.Synced, AgeNs: int64(st.Age), Epoch: st.Epoch, Seq: st.Seq,
		}
		if !st.HeardAt.IsZero() {
			l.HeardAtNs = st.HeardAt.UnixNano()
		}
		return st, l
	}
}

// announce publishes presence on this cluster's bus, if one is configured. The
// position is that in the other cluster's log.
func announce(ctx context.Context, s *run.Service, cfg config, other standing) error {
	if len(cfg.Bus.Servers) == 0 {
		return nil
	}
	own, err := bus.Connect(ctx, cfg.Bus, s.Name(), s.Metrics())
	if err != nil {
		return err
	}
	base := bus.NewPresence(s.Name(), build.Version(), own.Cluster())
	s.Part("bus", own.Run)
	s.Part("presence", func(ctx context.Context) error {
		return bus.Announce(ctx, own, presenceEvery, func() *busv1.Presence {
			st, l := other()
			p := bus.FrontPresence(base, st, len(s.NotReady()) == 0)
			p.Links = []*busv1.LinkState{l}
			return p
		})
	})
	return nil
}

// sink is where copies go.
type sink interface {
	Apply(ctx context.Context, want []derive.Mirror) (reconcile.Done, error)
	Join(ctx context.Context, want []derive.Member) (reconcile.Done, error)
}
