package bus_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// TestDamageAndAHoleAtOnce: a copy that differs and has missed a cut as well is
// behind every patch that a peer can make; it must not ask for one for ever.
func TestDamageAndAHoleAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		mem := bustest.Memory()
		lead := bus.NewReader(mem.Join(""), bus.ReaderConfig{})
		w := bus.NewWriter(mem.Join(""), lead, bus.WriterConfig{})
		tr := mem.Join("")
		follow := bus.NewReader(tr, bus.ReaderConfig{})
		for _, run := range []func(context.Context) error{lead.Run, w.Run, follow.Run} {
			go func() { _ = run(ctx) }()
		}
		if err := w.Lead(ctx, []bus.Change{node("a", "z1"), node("b", "z1")}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		var deaf, mute atomic.Bool
		mem.Decide(func(from, to bus.Transport, m bus.Message) bustest.Fate {
			if deaf.Load() && to == tr && strings.HasSuffix(m.Subject, ".log") || mute.Load() && from == tr {
				return bustest.Lost
			}
			return bustest.Pass
		})
		mute.Store(true)
		bus.Forget(follow, busv1.Table_TABLE_NODES, "b")
		pass(1100 * time.Millisecond) // a beacon tells of the damage; the question is lost
		deaf.Store(true)
		if _, err := w.Append(ctx, []bus.Change{node("a", "z2")}, time.Now()); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Millisecond)
		deaf.Store(false)
		pass(10 * time.Second)
		mute.Store(false)
		for range 10 { // the writer goes on, so that every peer stays ahead
			pass(time.Second)
			if _, err := w.Append(ctx, []bus.Change{node("c", time.Now().String())}, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Second)
		if got, want := follow.All(), lead.All(); len(got) != len(want) || follow.Status().Seq != lead.Status().Seq {
			t.Errorf("holds %d rows at %d, want %d at %d", len(got), follow.Status().Seq, len(want), lead.Status().Seq)
		}
		if n := bus.Repairs(follow, "snapshot"); n > 1 {
			t.Errorf("%v snapshots pulled, want the first one alone: a range and a patch are enough", n)
		}
	})
}
