package logtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Times of the cases: faster than in production, so that the suite is quick,
// and far apart, so that a busy machine doesn't matter.
const (
	beacon   = 50 * time.Millisecond
	silence  = 2 * time.Second
	deadline = 2 * time.Minute // only who hangs waits so long
	look     = 5 * time.Millisecond
)

// World is one bus and the processes on it.
type World struct {
	t   *testing.T
	rig Rig
	bus Bus
}

func newWorld(t *testing.T, rig Rig) *World {
	t.Helper()
	return &World{t: t, rig: rig, bus: rig.New(t)}
}

// NewWorld is a world on one bus, for tests that a rig is too general for.
func NewWorld(t *testing.T, b Bus) *World { return &World{t: t, bus: b} }

// Start starts a process with a consumer.
func (w *World) Start(name string) *Process {
	w.t.Helper()
	p := w.Prepare(name)
	p.Go()
	return p
}

// Prepare makes a process without starting it.
func (w *World) Prepare(name string) *Process {
	w.t.Helper()
	p := &Process{Name: name, t: w.t, Tap: &Tap{Transport: w.bus.Join("")}, view: map[string]string{}, Reg: prometheus.NewRegistry()}
	p.R = bus.NewReader(p.Tap, bus.ReaderConfig{Silence: silence, Registry: p.Reg})
	p.W = bus.NewWriter(p.Tap, p.R, bus.WriterConfig{BeaconEvery: beacon})
	w.t.Cleanup(p.Stop)
	return p
}

// Agree waits until every process holds, and every consumer was told, what the
// writer holds.
func (w *World) Agree(writer *Process, others ...*Process) {
	w.t.Helper()
	for _, p := range others {
		w.Until(p.Name+" agrees with "+writer.Name, func() error {
			ws, ps := writer.R.Status(), p.R.Status()
			if ws.Epoch != ps.Epoch || ws.Seq != ps.Seq {
				return fmt.Errorf("at (%d, %d), the writer at (%d, %d)", ps.Epoch, ps.Seq, ws.Epoch, ws.Seq)
			}
			want := rows(writer.R)
			if bad := differ(want, rows(p.R)); len(bad) > 0 {
				return fmt.Errorf("%d rows of the copy differ: %.500q", len(bad), bad)
			}
			if len(p.Cuts()) == 0 {
				return errors.New("its consumer was told nothing, not even that the log is empty")
			}
			if bad := differ(want, p.viewed()); len(bad) > 0 {
				return fmt.Errorf("%d rows that the consumer was told differ: %.500q", len(bad), bad)
			}
			return nil
		})
	}
}

// differ names the rows that are not the same; values may be megabytes.
func differ(want, got map[string]string) []string {
	var bad []string
	for id, v := range want {
		if g, ok := got[id]; !ok || g != v {
			bad = append(bad, id)
		}
	}
	for id := range got {
		if _, ok := want[id]; !ok {
			bad = append(bad, id)
		}
	}
	slices.Sort(bad)
	return bad
}

func rows(r *bus.Reader) map[string]string {
	out := map[string]string{}
	for _, c := range r.All() {
		out[c.Table.String()+" "+c.Key] = string(c.Value)
	}
	return out
}

// Until waits for a condition.
func (w *World) Until(what string, ok func() error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), deadline)
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("waiting until %s: %v", what, err)
		case <-tick.C:
		}
	}
}

// Equal fails unless got is want.
func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// Node is a small row.
func node(name, zone string) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_NODES, Key: bus.Key(name), Value: bus.Encode(&busv1.Node{Name: name, Zone: zone})}
}

func noNode(name string) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_NODES, Key: bus.Key(name)}
}

// nodes are n rows.
func nodes(n int, zone string) []bus.Change {
	out := make([]bus.Change, n)
	for i := range out {
		out[i] = node(fmt.Sprintf("node-%06d", i), zone)
	}
	return out
}
