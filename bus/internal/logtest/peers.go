package logtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

func peerSnapshot(t *testing.T, w *World) {
	writer, peer := w.Start("writer"), w.Start("peer")
	writer.Lead(bulk(5000)...)
	w.Agree(writer, peer)
	writer.Stop()
	cold := w.Start("cold")
	w.Agree(peer, cold)
	equal(t, "first cut is complete", cold.Cuts()[0].Complete, true)
	w.Until("both are stale and say so", func() error {
		for _, p := range []*Process{peer, cold} {
			if st := p.R.Status(); !st.Stale || st.Age < silence || !st.Synced {
				return fmt.Errorf("%s: %+v", p.Name, st)
			}
		}
		return nil
	})
	// Who starts now knows at once how old it is what it gets.
	later := w.Start("later")
	w.Agree(peer, later)
	if st := later.R.Status(); !st.Stale || st.Age < silence {
		t.Errorf("Status() = %+v, want stale since the writer died", st)
	}
}

// bulk is n rows of about 1 KB that don't compress, so a snapshot has chunks.
func bulk(n int) []bus.Change {
	out := make([]bus.Change, n)
	for i := range out {
		out[i] = node(fmt.Sprintf("bulk-%05d", i), noise(i, 1000))
	}
	return out
}

func peerDies(t *testing.T, w *World) {
	writer, one, two := w.Start("writer"), w.Start("one"), w.Start("two")
	writer.Lead(bulk(8000)...) // 8 MB
	w.Agree(writer, one, two)
	writer.Stop()
	cold := w.Prepare("cold")
	// Whoever is asked first falls silent when two chunks have arrived. What
	// counts is what arrived: a slow machine may lose an answer to a timeout.
	for _, p := range []*Process{one, two} {
		p.OnChunk(func(int64) bool { return cold.got.Load() < 2 })
	}
	cold.Go()
	var died, alive *Process
	w.Until("one served two chunks and went silent", func() error {
		if cold.got.Load() < 2 {
			return errors.New("not yet")
		}
		died, alive = one, two
		if two.chunks.Load() > one.chunks.Load() {
			died, alive = two, one
		}
		return nil
	})
	alive.OnChunk(nil)
	w.Until("the reader gave up on it", func() error {
		if cold.Metric("weft_bus_repair_failures_total") == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	died.Stop()
	w.Agree(alive, cold)
	cold.Stop()
	whole := w.Start("whole")
	w.Agree(alive, whole)
	if all := whole.got.Load(); cold.got.Load() != all {
		t.Errorf("%d chunks arrived for a snapshot of %d, want each of them once", cold.got.Load(), all)
	}
}

func behindPeer(t *testing.T, w *World) {
	writer, behind, reader := w.Start("writer"), w.Start("behind"), w.Start("reader")
	writer.Lead(nodes(10, "a")...)
	w.Agree(writer, behind, reader)
	behind.Deaf() // it doesn't know that it is behind, and answers
	for i := range 20 {
		loseBatches(reader, 1)
		writer.Append(node("lost", fmt.Sprint(i)))
		writer.Append(node("heard", fmt.Sprint(i)))
		w.Agree(writer, reader)
	}
	if behind.asked.Load() == 0 {
		t.Error("the peer that is behind was never asked in 20 gaps")
	}
	equal(t, "said so", behind.Metric("weft_bus_answers_total", "kind=behind") > 0, true)
}

func corruptCopy(t *testing.T, w *World) {
	writer, reader, other := w.Start("writer"), w.Start("reader"), w.Start("other")
	policy := bus.Change{Table: busv1.Table_TABLE_SERVERS, Key: bus.Key("ns", "web"), Value: bus.Encode(&busv1.Server{Namespace: "ns", Name: "web"})}
	writer.Lead(append(nodes(1000, "a"), policy)...)
	w.Agree(writer, reader, other)
	before := len(reader.Cuts())
	w.rig.Damage(reader.R, busv1.Table_TABLE_SERVERS, policy.Key)
	start := time.Now()
	w.Until("the table is named", func() error {
		if reader.Metric("weft_bus_digest_mismatches_total", "table=servers") == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	// The log goes on meanwhile.
	for i := range 20 {
		writer.Append(node("busy", fmt.Sprint(i)))
	}
	w.Agree(writer, reader)
	t.Logf("found and healed in %v, beacons every %v", time.Since(start), beacon)
	equal(t, "other tables named", reader.Metric("weft_bus_digest_mismatches_total", "table=nodes"), 0)
	equal(t, "mismatches elsewhere", other.Metric("weft_bus_digest_mismatches_total"), 0)
	told := map[string]bool{}
	// The consumer never lost the row, so it agrees before it is told again.
	w.Until("the consumer is told of the healed row", func() error {
		clear(told)
		for _, cut := range reader.Cuts()[before:] {
			for _, c := range cut.Changes {
				told[c.Key] = true
			}
		}
		if !told[policy.Key] {
			return errors.New("not yet")
		}
		return nil
	})
	equal(t, "rows told about", told, map[string]bool{"busy": true, policy.Key: true})
}

func resume(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	writer.Lead(nodes(1000, "a")...)
	w.Agree(writer, reader)
	before := len(reader.Cuts())
	nothing := func() float64 {
		return reader.Metric("weft_bus_repairs_total", "kind=nothing") + writer.Metric("weft_bus_repairs_total", "kind=nothing")
	}
	was := nothing()
	reader.Reconnect()
	w.Until("it resumed", func() error {
		if nothing() == was {
			return errors.New("not yet")
		}
		return nil
	})
	for _, p := range []*Process{writer, reader} {
		if q, a := p.askBytes.Load(), p.answerBytes.Load(); p.asked.Load() > 1 && (q > 64 || a > 64) {
			t.Errorf("resume took %d bytes to ask and %d to answer, want at most 64", q, a)
		}
	}
	writer.Append(node("after", "a"))
	w.Agree(writer, reader)
	equal(t, "changes told", reader.Changes(before), 1)
}

func presence(t *testing.T, w *World) {
	ctx, cancel := context.WithCancel(t.Context())
	speaker, listener := w.bus.Join(""), w.bus.Join("")
	heard := make(chan *busv1.Presence, 16)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for p, err := range bus.Hear(ctx, listener) {
			if err != nil {
				return
			}
			heard <- p
		}
	}()
	base := bus.NewPresence("destination", "v1", "local")
	st := bus.Status{Synced: true, Epoch: 7, Seq: 9, Stale: true, Age: time.Minute}
	announcing, quiet := context.WithCancel(ctx)
	left := make(chan error, 1)
	go func() {
		left <- bus.Announce(announcing, speaker, beacon, func() *busv1.Presence { return bus.FrontPresence(base, st, true) })
	}()
	got := <-heard
	if got.GetSentAtNs() == 0 {
		t.Error("presence doesn't say when it was sent")
	}
	got.SentAtNs = 0
	want := proto.Clone(base).(*busv1.Presence)
	want.Epoch, want.Seq, want.Stale, want.AgeNs, want.Ready = 7, 9, true, int64(time.Minute), true
	if !proto.Equal(got, want) {
		t.Errorf("heard %v, want %v", got, want)
	}
	quiet()
	for got = range heard {
		if got.GetLeaving() {
			break
		}
	}
	if err := <-left; err != nil {
		t.Errorf("Announce() = %v", err)
	}

	if _, err := bus.AskRoll(ctx, listener); !errors.Is(err, bus.ErrNoPeers) {
		t.Errorf("AskRoll() without a heartbeat = %v, want %v", err, bus.ErrNoPeers)
	}
	served := make(chan error, 1)
	roll := &busv1.Roll{Entries: []*busv1.RollEntry{{Presence: want}}}
	go func() { served <- bus.ServeRoll(ctx, speaker, func() *busv1.Roll { return roll }) }()
	w.Until("the roll is served", func() error {
		got, err := bus.AskRoll(ctx, listener)
		if err == nil && !proto.Equal(got, roll) {
			t.Errorf("AskRoll() = %v, want %v", got, roll)
		}
		return err
	})
	cancel()
	<-served
	<-ended
}
