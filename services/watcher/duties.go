package main

import (
	"context"
	"iter"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/run"
	"github.com/weftmesh/weft/services/watcher/internal/external"
	"github.com/weftmesh/weft/services/watcher/internal/herald"
	"github.com/weftmesh/weft/services/watcher/internal/kube"
	"github.com/weftmesh/weft/services/watcher/internal/publish"
	"github.com/weftmesh/weft/services/watcher/internal/source"
	"github.com/weftmesh/weft/services/watcher/internal/status"
)

// duties are what the leader writes to Kubernetes; nil where there is none to write
// to.
type duties struct {
	herald    *herald.Herald
	statuses  *status.Writer
	externals *external.Controller
}

// newDuties makes them. publisher is asked later: it is made after.
func newDuties(cfg config, src source.Source, t bus.Transport, r *bus.Reader, publisher func() *publish.Publisher, s *run.Service) *duties {
	k, ok := src.(*kube.Source)
	if !ok {
		return nil
	}
	term := func() (context.Context, func() error, bool) { return publisher().Term() }
	return &duties{
		herald: herald.New(k, k.Events(), herald.Config{
			Leading:  func() bool { return publisher().Leading() },
			Instance: identity(cfg.Identity),
			Registry: s.Metrics(),
		}),
		statuses: status.New(k, status.Config{
			Term: term,
			At: func() (epoch, seq uint64) {
				st := r.Status()
				return st.Epoch, st.Seq
			},
			Ask: func(ctx context.Context, epoch, seq uint64) (bus.Wanted, error) {
				return bus.AskStatus(ctx, t, epoch, seq)
			},
			Hear:     func(ctx context.Context) iter.Seq2[*busv1.Presence, error] { return bus.Hear(ctx, t) },
			Registry: s.Metrics(),
		}),
		externals: external.New(k, k.Slices(), external.Config{Term: term, Registry: s.Metrics()}),
	}
}

// wrote tells them of rows that the log has taken.
func (d *duties) wrote(changes []bus.Change) {
	if d == nil {
		return
	}
	d.statuses.Wrote(changes)
	d.externals.Wrote(changes)
}

// start makes them parts of the process.
func (d *duties) start(s *run.Service) {
	if d == nil {
		return
	}
	s.Part("herald", d.herald.Run)
	s.Part("statuses", d.statuses.Run)
	s.Part("external", d.externals.Run)
}

// unmeshed is how many pods should have a proxy and have none.
func (d *duties) unmeshed() int {
	if d == nil {
		return 0
	}
	return d.herald.Unmeshed()
}
