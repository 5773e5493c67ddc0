package logtest

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/weftmesh/weft/bus"
)

var noTime time.Time

func oldEpoch(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	writer.Lead(nodes(3, "a")...)
	w.Agree(writer, reader)
	var old bus.Message
	got := make(chan struct{})
	reader.OnLog(func(m bus.Message) []bus.Message {
		if m.Header["K"] == "batch" && old.Data == nil {
			old = m
			close(got)
		}
		return []bus.Message{m}
	})
	writer.Append(node("node-000001", "b"))
	<-got
	w.Agree(writer, reader)
	writer.Lead(nodes(3, "c")...)
	w.Agree(writer, reader)
	before := len(reader.Cuts())
	// The same batch again, as an old leader would send it: next in sequence,
	// far ahead, and as a beacon.
	for _, seq := range []uint64{reader.R.Status().Seq + 1, 1 << 40} {
		for _, kind := range []string{"batch", "beacon"} {
			h := bus.Header{"E": old.Header["E"], "S": strconv.FormatUint(seq, 10), "K": kind}
			if err := writer.Transport.Publish(old.Subject, h, old.Data); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.Until("they were dropped", func() error {
		if n := reader.Metric("weft_bus_old_epoch_total"); n < 4 {
			return fmt.Errorf("%v of 4 counted", n)
		}
		return nil
	})
	w.Agree(writer, reader)
	equal(t, "changes told", reader.Changes(before), 0)
}

func failover(t *testing.T, w *World) {
	first, standby, reader := w.Start("first"), w.Start("standby"), w.Start("reader")
	first.Lead(nodes(100, "a")...)
	w.Agree(first, standby, reader)
	epoch := reader.R.Status().Epoch
	first.Stop()
	before := len(reader.Cuts())
	truth := nodes(90, "a") // ten are gone, one is new, one is different
	truth[0] = node("node-000000", "b")
	truth = append(truth, node("new", "a"))
	standby.Lead(truth...)
	w.Agree(standby, reader)
	if got := reader.R.Status().Epoch; got <= epoch {
		t.Errorf("epoch %d after %d, want a higher one", got, epoch)
	}
	equal(t, "changes told", reader.Changes(before), 12)
	standby.Append(node("after", "a"))
	w.Agree(standby, reader)
}

func failoverGoesOn(t *testing.T, w *World) {
	first, standby, reader, behind := w.Start("first"), w.Start("standby"), w.Start("reader"), w.Start("behind")
	first.Lead(nodes(10, "a")...)
	w.Agree(first, standby, reader, behind)
	repairs := func(p *Process) float64 { return p.Metric("weft_bus_repairs_total") }
	behind.Deaf()
	first.Append(node("missed", "a"))
	w.Agree(first, standby, reader)
	before := repairs(reader)
	first.Stop()
	behind.OnLog(nil)
	standby.Lead(append(nodes(10, "a"), node("missed", "b"))...)
	w.Agree(standby, reader, behind)
	equal(t, "repairs of who was at the end", repairs(reader), before)
	equal(t, "repairs of who was behind", repairs(behind) > before, true)
}

func pausedLeader(t *testing.T, w *World) {
	old, next, reader := w.Start("old"), w.Start("next"), w.Start("reader")
	old.Lead(nodes(10, "a")...)
	w.Agree(old, next, reader)
	// Paused: it hears nothing, and nobody hears it, until it wakes.
	old.Deaf()
	next.Lead(append(nodes(9, "a"), node("next", "b"))...)
	w.Agree(next, reader)
	before := len(reader.Cuts())
	for i := range 5 {
		old.Append(node(fmt.Sprint("old-", i), "x"), noNode("next"))
	}
	next.Append(node("mark", "b"))
	w.Agree(next, reader)
	equal(t, "changes told", reader.Changes(before), 1)
	// Once it hears the new epoch it is deposed and follows.
	old.OnLog(nil)
	w.Agree(next, old)
	if _, err := old.W.Append(t.Context(), nodes(1, "x"), noTime); !errors.Is(err, bus.ErrNotLeading) {
		t.Errorf("Append() of a deposed leader = %v, want %v", err, bus.ErrNotLeading)
	}
	w.Agree(next, reader, old)
}

func freshLeader(t *testing.T, w *World) {
	first, reader := w.Start("first"), w.Start("reader")
	first.Lead(nodes(10, "a")...)
	w.Agree(first, reader)
	first.Stop()
	// It never heard of what readers hold, so it can't name what is gone.
	fresh := w.Prepare("fresh")
	fresh.Lead(nodes(5, "a")...)
	fresh.Go()
	before := len(reader.Cuts())
	w.Agree(fresh, reader)
	equal(t, "changes told", reader.Changes(before), 5)
}
