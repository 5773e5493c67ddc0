package bus_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// These tests are about time, so they run on the memory bus in virtual time,
// with the settings of production.

type world struct {
	t    *testing.T
	mem  *bustest.Mem
	stop context.CancelFunc
	ctx  context.Context //nolint:containedctx // a test's world
	wg   sync.WaitGroup
}

type process struct {
	bus.Transport
	r *bus.Reader
	w *bus.Writer
}

func virtual(t *testing.T, run func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		w := &world{t: t, mem: bustest.Memory(), ctx: ctx, stop: stop}
		run(t, w)
		stop()
		w.wg.Wait()
	})
}

func (w *world) join() *process {
	p := &process{Transport: w.mem.Join("")}
	p.r = bus.NewReader(p.Transport, bus.ReaderConfig{})
	p.w = bus.NewWriter(p.Transport, p.r, bus.WriterConfig{})
	w.wg.Go(func() { _ = p.r.Run(w.ctx) })
	w.wg.Go(func() { _ = p.w.Run(w.ctx) })
	return p
}

func (w *world) lead(p *process, truth ...bus.Change) {
	w.t.Helper()
	if err := p.w.Lead(w.ctx, truth); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) append(p *process, changes ...bus.Change) {
	w.t.Helper()
	if _, err := p.w.Append(w.ctx, changes, time.Now()); err != nil {
		w.t.Fatal(err)
	}
}

// within fails unless the two copies are at one place after d.
func (w *world) within(d time.Duration, a, b *process) {
	w.t.Helper()
	pass(d)
	as, bs := a.r.Status(), b.r.Status()
	if as.Epoch != bs.Epoch || as.Seq != bs.Seq || !bs.Synced {
		w.t.Fatalf("after %v one is at (%d, %d), the other at (%d, %d)", d, as.Epoch, as.Seq, bs.Epoch, bs.Seq)
	}
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	<-time.NewTimer(d).C
	synctest.Wait()
}

func TestColdStartTakesNoTime(t *testing.T) {
	virtual(t, func(_ *testing.T, w *world) {
		writer := w.join()
		pass(time.Minute) // alone, polling ever more slowly
		w.lead(writer, node("n", "a"))
		synctest.Wait() // until it answers asks, which its Run begins after Lead has returned
		reader := w.join()
		w.within(time.Millisecond, writer, reader)
	})
}

func TestReaderWithoutAnybodyPollsSlowly(t *testing.T) {
	virtual(t, func(t *testing.T, w *world) {
		reader := w.join()
		// Somebody who counts and doesn't answer is worse than nobody.
		var asks atomic.Int32
		sub, err := w.mem.Join("").Serve("weft.local.ask", "peers", func(q bus.Request) {
			asks.Add(1)
			_ = q.Respond([]byte{0}) // an answer of no kind
		})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Stop()
		pass(time.Minute)
		if n := asks.Load(); n < 25 || n > 45 {
			t.Errorf("%d asks in a minute, want about 30", n)
		}
		if reader.r.Synced() == nil {
			t.Error("synced with nobody")
		}
	})
}

func TestLossIsFoundByTheNextBeacon(t *testing.T) {
	virtual(t, func(_ *testing.T, w *world) {
		writer, reader := w.join(), w.join()
		w.lead(writer, node("n", "a"))
		w.within(time.Second, writer, reader)
		w.mem.Lose(1, bustest.Which{To: reader.Transport, Subject: "log", Kind: "batch"})
		w.append(writer, node("n", "b"))
		w.within(1100*time.Millisecond, writer, reader)
	})
}

func TestCorruptionHealsWithinOnePeriod(t *testing.T) {
	virtual(t, func(t *testing.T, w *world) {
		writer, reader := w.join(), w.join()
		w.lead(writer, node("n", "a"), node("m", "a"))
		w.within(3*time.Second, writer, reader)
		bus.Damage(reader.r, busv1.Table_TABLE_NODES, "n")
		pass(1100 * time.Millisecond)
		if _, ok := reader.r.Row(busv1.Table_TABLE_NODES, "n"); !ok {
			t.Error("the row is still missing after the next beacon")
		}
		// A copy that is damaged again at once is healed more slowly, but healed.
		bus.Damage(reader.r, busv1.Table_TABLE_NODES, "n")
		pass(time.Minute)
		if _, ok := reader.r.Row(busv1.Table_TABLE_NODES, "n"); !ok {
			t.Error("the row is still missing after a minute")
		}
		if n := bus.Repairs(reader.r, "patch"); n != 1 {
			t.Errorf("%v patches, want the first heal to be one", n)
		}
		if n := bus.Repairs(reader.r, "snapshot"); n != 2 {
			t.Errorf("%v snapshots, want one at the start and one of the second heal", n)
		}
	})
}

func TestSilenceMakesStaleAndIsSurvived(t *testing.T) {
	virtual(t, func(t *testing.T, w *world) {
		writer, reader := w.join(), w.join()
		w.lead(writer, node("n", "a"))
		w.within(5*time.Second, writer, reader)
		if st := reader.r.Status(); st.Stale || st.Age != 0 {
			t.Fatalf("Status() = %+v, want live", st)
		}
		var reconnects atomic.Int32
		stop := reader.Watch(func(e bus.Event) {
			if e == bus.Disconnected {
				reconnects.Add(1)
			}
		})
		defer stop()
		writer.w.Resign() // nobody speaks any more, but peers still answer
		pass(2 * time.Second)
		if st := reader.r.Status(); st.Stale {
			t.Errorf("stale after 2 s: %+v", st)
		}
		pass(3 * time.Second)
		if st := reader.r.Status(); !st.Stale || st.Age < 4*time.Second || st.Age > 6*time.Second {
			t.Errorf("after 5 s of silence: %+v, want stale and so old", st)
		}
		if n := reconnects.Load(); n != 1 {
			t.Errorf("%d reconnects after 5 s, want 1", n)
		}
		pass(time.Minute)
		if st := reader.r.Status(); !st.Stale || st.Age < time.Minute {
			t.Errorf("after a minute of silence: %+v, want older: two peers must not keep each other young", st)
		}
		if n := reconnects.Load(); n > 3 {
			t.Errorf("%d reconnects in a minute, want one in 30 s", n)
		}
		w.lead(writer, node("n", "b"))
		w.within(time.Second, writer, reader)
		if st := reader.r.Status(); st.Stale {
			t.Errorf("Status() with a new leader = %+v, want live", st)
		}
	})
}

// TestLeaderWhoseClockIsBehind: a leader that knows of no predecessor takes an
// epoch below the one that readers follow, and they drop all it says. Their asks
// tell it, and it leads again.
func TestLeaderWhoseClockIsBehind(t *testing.T) {
	virtual(t, func(t *testing.T, w *world) {
		pass(time.Hour)
		ahead, reader := w.join(), w.join()
		w.lead(ahead, node("n", "a"))
		w.within(time.Second, ahead, reader)
		ahead.w.Resign()
		w.mem.Cut(ahead.Transport)

		behind := &process{Transport: w.mem.Join("")}
		behind.r = bus.NewReader(behind.Transport, bus.ReaderConfig{})
		behind.w = bus.NewWriter(behind.Transport, behind.r, bus.WriterConfig{Now: func() time.Time { return time.Now().Add(-time.Minute) }})
		w.lead(behind, node("n", "b"))
		w.wg.Go(func() { _ = behind.r.Run(w.ctx) })
		w.wg.Go(func() { _ = behind.w.Run(w.ctx) })
		pass(10 * time.Second)
		if behind.w.Leading() {
			t.Fatal("it was never told that readers follow a higher epoch")
		}
		if _, err := behind.w.Append(w.ctx, []bus.Change{node("n", "c")}, time.Now()); !errors.Is(err, bus.ErrNotLeading) {
			t.Errorf("Append() = %v, want %v", err, bus.ErrNotLeading)
		}
		w.lead(behind, node("n", "c"))
		w.within(time.Second, behind, reader)
	})
}

func TestReaderThatHearsNothingPolls(t *testing.T) {
	virtual(t, func(t *testing.T, w *world) {
		writer, reader := w.join(), w.join()
		w.lead(writer, node("n", "a"))
		w.within(time.Second, writer, reader)
		w.mem.Lose(1<<30, bustest.Which{To: reader.Transport, Subject: "log"})
		for i := range 10 {
			w.append(writer, node("n", time.Duration(i).String()))
			w.within(6*time.Second, writer, reader)
		}
	})
}

func TestPartitionEndsWithOneAsk(t *testing.T) {
	virtual(t, func(t *testing.T, w *world) {
		writer, reader := w.join(), w.join()
		w.lead(writer, node("n", "a"))
		w.within(time.Second, writer, reader)
		w.mem.Cut(reader.Transport)
		for i := range 100 {
			w.append(writer, node("n", time.Duration(i).String()))
		}
		pass(time.Minute)
		if st := reader.r.Status(); !st.Stale || st.Age < 59*time.Second {
			t.Errorf("Status() after a minute alone = %+v", st)
		}
		w.mem.Heal(reader.Transport)
		w.within(time.Millisecond, writer, reader)
		pass(time.Second)
		if st := reader.r.Status(); st.Stale {
			t.Errorf("Status() after the next beacon = %+v, want live", st)
		}
	})
}

func TestSlowSignalResyncsAtOnce(t *testing.T) {
	virtual(t, func(_ *testing.T, w *world) {
		writer, reader := w.join(), w.join()
		w.lead(writer, node("n", "a"))
		w.within(1500*time.Millisecond, writer, reader)
		w.mem.Manual()
		w.append(writer, node("n", "b"))
		w.mem.Slow(reader.Transport)
		w.mem.Automatic()
		w.within(time.Millisecond, writer, reader)
	})
}

func TestSilentPeerIsLeftAfterTwoSeconds(t *testing.T) {
	virtual(t, func(_ *testing.T, w *world) {
		writer, peer := w.join(), w.join()
		w.lead(writer, node("n", "a"))
		w.within(time.Second, writer, peer)
		w.mem.Lose(1, bustest.Which{From: writer.Transport, Subject: bustest.ReplySubject})
		w.mem.Lose(1, bustest.Which{From: peer.Transport, Subject: bustest.ReplySubject})
		cold := w.join()
		// One of them is asked, doesn't answer for 2 s, and so does the next.
		w.within(4200*time.Millisecond, writer, cold)
	})
}

func TestPaceGathersOnlyWhenBusy(t *testing.T) {
	var p bus.Pace
	now := time.Unix(1_000_000, 0)
	for range 100 { // 20 a second
		if d := p.Count(now, 1); d != 0 {
			t.Fatalf("Count() at 20 a second = %v, want 0", d)
		}
		now = now.Add(50 * time.Millisecond)
	}
	if d := p.Count(now, 400); d != 0 {
		t.Errorf("Count() of one burst = %v, want 0", d)
	}
	waited := 0
	for range 1000 { // 2,000 a second
		now = now.Add(500 * time.Microsecond)
		if p.Count(now, 1) > 0 {
			waited++
		}
	}
	if waited < 900 {
		t.Errorf("%d of 1000 waited at 2,000 a second", waited)
	}
	now = now.Add(time.Second)
	if d := p.Count(now, 1); d != 0 {
		t.Errorf("Count() after a pause = %v, want 0", d)
	}
}
