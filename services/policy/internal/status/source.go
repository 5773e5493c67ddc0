package status

import (
	"context"
	"sync"
	"time"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// tables are what has been judged.
type tables interface {
	Synced() error
	Judged(after string, limit int) (list []table.Judged, more bool, at table.Position, err error)
}

// log tells how far the tables have come.
type log interface {
	Consumed() (epoch, seq uint64)
}

// Source gives the wanted statuses of all objects.
type Source struct {
	tables tables
	log    log

	mu      sync.Mutex
	derived bool
	at      table.Position // what kept was derived from
	kept    []*busv1.Status
}

// NewSource makes one; nothing is derived until it is asked for.
func NewSource(t tables, l log) *Source { return &Source{tables: t, log: l} }

// page bounds how many objects are listed while the tables are held.
const page = 1000

// Wanted lists the statuses of all objects, in the order of their keys, and how
// far the log was known: all that came up to there is in it. What it returns is
// not changed afterwards.
func (s *Source) Wanted() bus.Wanted {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Before the tables are read, so that it is not more than they know.
	epoch, seq := s.log.Consumed()
	kept, err := s.derive()
	if err != nil {
		return bus.Wanted{} // knows nothing, as of no point of the log
	}
	return bus.Wanted{Epoch: epoch, Seq: seq, Statuses: kept}
}

// derive lists anew if the tables have changed.
func (s *Source) derive() ([]*busv1.Status, error) {
	if _, _, at, err := s.tables.Judged("", 0); err != nil || s.derived && at == s.at {
		return s.kept, err
	}
	var out []*busv1.Status
	after := ""
	for {
		list, more, at, err := s.tables.Judged(after, page)
		if err != nil {
			return nil, err
		}
		if after == "" {
			s.at = at
		}
		for _, j := range list {
			out = append(out, Of(j))
		}
		if !more || len(list) == 0 {
			break
		}
		after = list[len(list)-1].Key
	}
	s.derived, s.kept = true, out
	return out, nil
}

// lookEvery is how often the tables are asked whether they are complete.
const lookEvery = 100 * time.Millisecond

// Serve answers the watcher's questions until ctx ends; not before the tables
// are complete, since a replica that knows nothing would only be asked in vain.
func Serve(ctx context.Context, t bus.Transport, s *Source) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for s.tables.Synced() != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
	return bus.ServeStatus(ctx, t, s.Wanted) //nolint:wrapcheck // it says "serving statuses"
}
