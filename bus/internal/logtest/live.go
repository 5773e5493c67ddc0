package logtest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

func completeFirst(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	if err := reader.R.Synced(); !errors.Is(err, bus.ErrNotSynced) {
		t.Errorf("Synced() before a leader = %v, want %v", err, bus.ErrNotSynced)
	}
	writer.Lead(nodes(100, "a")...)
	w.Agree(writer, reader, writer)
	first := reader.Cuts()[0]
	equal(t, "first cut's size", len(first.Changes), 100)
	equal(t, "first cut is complete", first.Complete, true)
	for _, cut := range reader.Cuts()[1:] {
		if cut.Complete {
			t.Errorf("cut at %d is complete, want only the first", cut.Seq)
		}
	}
	if err := reader.R.Synced(); err != nil {
		t.Errorf("Synced() = %v", err)
	}
	// Who comes later sees the state, not the past.
	late := w.Start("late")
	w.Agree(writer, late)
	equal(t, "late reader's cuts", len(late.Cuts()), 1)
}

func liveChange(t *testing.T, w *World) {
	writer, one, two := w.Start("writer"), w.Start("one"), w.Start("two")
	writer.Lead(nodes(3, "a")...)
	w.Agree(writer, one, two)
	before := len(one.Cuts())
	writer.Append(node("node-000001", "b"), noNode("node-000002"), node("new", "c"))
	w.Agree(writer, one, two)
	cuts := one.Cuts()[before:]
	equal(t, "cuts", len(cuts), 1)
	equal(t, "changes", cuts[0].Changes, []bus.Change{node("new", "c"), node("node-000001", "b"), noNode("node-000002")})
	if st := one.R.Status(); st.Stale || st.Age != 0 || !st.Synced {
		t.Errorf("Status() = %+v, want live", st)
	}
	equal(t, "gaps", one.Metric("weft_bus_gaps_total"), 0)
}

func equalBytes(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	writer.Lead(nodes(10, "a")...)
	w.Agree(writer, reader)
	seq, sent, cuts := writer.R.Status().Seq, writer.published.Load(), len(reader.Cuts())
	equal(t, "sequence", writer.Append(nodes(10, "a")...), seq)
	equal(t, "sequence after removing nobody", writer.Append(noNode("nobody")), seq)
	equal(t, "sequence of nothing", writer.Append(), seq)
	writer.Append(node("mark", "a"))
	w.Agree(writer, reader)
	equal(t, "messages", writer.published.Load(), sent+1)
	equal(t, "cuts", len(reader.Cuts()), cuts+1)
}

func oneCut(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	writer.Lead()
	w.Agree(writer, reader)
	before := len(reader.Cuts())
	server := bus.Change{Table: busv1.Table_TABLE_SERVERS, Key: bus.Key("ns", "web"), Value: bus.Encode(&busv1.Server{Namespace: "ns", Name: "web"})}
	endpoint := bus.Change{Table: busv1.Table_TABLE_ENDPOINTS, Key: bus.Key("ns", "web", "web-1", "10.0.0.1"), Value: bus.Encode(&busv1.Endpoint{Namespace: "ns", Service: "web"})}
	// Set twice in one append: the last counts. The policy comes first.
	writer.Append(endpoint, node("n", "a"), server, node("n", "b"))
	w.Agree(writer, reader)
	equal(t, "cuts", len(reader.Cuts()), before+1)
	equal(t, "changes", reader.Cuts()[before].Changes, []bus.Change{node("n", "b"), server, endpoint})
	gone := func(c bus.Change) bus.Change { return bus.Change{Table: c.Table, Key: c.Key} }
	writer.Append(gone(server), gone(endpoint), node("m", "a"))
	w.Agree(writer, reader)
	equal(t, "removals", reader.Cuts()[before+1].Changes, []bus.Change{node("m", "a"), gone(endpoint), gone(server)})
}

func bigCut(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	writer.Lead()
	w.Agree(writer, reader)
	before, sent := len(reader.Cuts()), writer.published.Load()
	writer.Append(nodes(5000, "a")...) // more rows than a batch may have
	w.Agree(writer, reader)
	if n := writer.published.Load() - sent; n != 3 {
		t.Errorf("5000 rows in %d messages, want 3", n)
	}
	var wide []bus.Change
	for i := range 20 { // more bytes than a batch may have
		wide = append(wide, node(fmt.Sprintf("wide-%d", i), noise(i, 100<<10)))
	}
	writer.Append(wide...)
	w.Agree(writer, reader)
	equal(t, "cuts", len(reader.Cuts()), before+2)
	equal(t, "snapshots", reader.Metric("weft_bus_repairs_total", "kind=snapshot"), 1)
}

func hugeCut(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	writer.Lead(nodes(10, "a")...)
	w.Agree(writer, reader)
	sent := writer.published.Load()
	var rows []bus.Change
	for i := range 40 {
		rows = append(rows, node(fmt.Sprintf("huge-%02d", i), noise(i, 400<<10)))
	}
	writer.Append(rows...)
	writer.Append(node("after", "a"))
	w.Agree(writer, reader)
	equal(t, "batches", writer.published.Load(), sent+1)
	if n := reader.Changes(1); n != 41 {
		t.Errorf("consumer was told %d changes, want 41", n)
	}
}

// noise is text that doesn't compress well.
func noise(seed, n int) string {
	x := uint64(seed)*2654435761 + 88172645463325252
	b := make([]byte, 0, n+16)
	for len(b) < n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b = strconv.AppendUint(b, x, 36)
	}
	return string(b[:n])
}

func largeRow(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	writer.Lead(node("fat", "a"))
	w.Agree(writer, reader)
	_, err := writer.W.Append(t.Context(), []bus.Change{node("fat", noise(1, 600<<10)), node("thin", "b")}, time.Now())
	if !errors.Is(err, bus.ErrTooLarge) || !strings.Contains(fmt.Sprint(err), "fat") {
		t.Errorf("Append() of a large row = %v, want %v naming it", err, bus.ErrTooLarge)
	}
	w.Agree(writer, reader)
	equal(t, "rows", reader.R.All(), []bus.Change{node("fat", "a"), node("thin", "b")})
}

func laterTable(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	later := bus.Change{Table: 99, Key: bus.Key("x"), Value: []byte("anything")}
	writer.Lead(later, node("n", "a"))
	w.Agree(writer, reader)
	later.Value = []byte{}
	writer.Append(later)
	w.Agree(writer, reader)
	equal(t, "rows", reader.R.Rows(99), []bus.Change{later})
	w.Until("a beacon was compared", func() error {
		if reader.Metric("weft_bus_rows", "table=unknown") != 1 {
			return errors.New("not counted")
		}
		return nil
	})
	equal(t, "mismatches", reader.Metric("weft_bus_digest_mismatches_total"), 0)
}

func slowConsumer(t *testing.T, w *World) {
	writer, slow, quick := w.Start("writer"), w.Start("slow"), w.Start("quick")
	writer.Lead(node("a", "0"))
	w.Agree(writer, slow, quick)
	unblock := slow.Block()
	writer.Append(node("first", "0"))
	w.Until("the slow consumer hangs", func() error {
		if len(slow.Cuts()) < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	before := len(slow.Cuts())
	for i := range 500 {
		writer.Append(node("a", fmt.Sprint(i)), node(fmt.Sprintf("b%d", i%10), fmt.Sprint(i)))
	}
	writer.Append(noNode("b3"))
	w.Agree(writer, quick)
	w.Until("the slow reader has all", func() error {
		if got, want := slow.R.Status().Seq, writer.R.Status().Seq; got != want {
			return fmt.Errorf("at %d, want %d", got, want)
		}
		return nil
	})
	unblock()
	w.Agree(writer, slow)
	equal(t, "cuts told late", len(slow.Cuts())-before, 1)
	equal(t, "changes told late", slow.Changes(before), 11)
}

func secondConsumer(t *testing.T, w *World) {
	reader := w.Start("reader")
	w.Until("the first consumer reads", func() error {
		for _, err := range reader.R.Read(canceled(t)) {
			if errors.Is(err, bus.ErrConsumer) {
				return nil
			}
		}
		return errors.New("not refused")
	})
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func traceCrosses(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	writer.Lead()
	w.Agree(writer, reader)
	before := len(reader.Cuts())
	parent := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4, 5, 6}, TraceFlags: trace.FlagsSampled, Remote: true,
	})
	observed := time.Now().Add(-time.Second)
	_, err := writer.W.Append(trace.ContextWithSpanContext(t.Context(), parent), []bus.Change{node("n", "a")}, observed)
	if err != nil {
		t.Fatal(err)
	}
	w.Agree(writer, reader)
	cut := reader.Cuts()[before]
	equal(t, "trace", cut.Trace.TraceID(), parent.TraceID())
	equal(t, "sampled", cut.Trace.IsSampled(), true)
	equal(t, "observed", cut.ObservedAt.UnixNano(), observed.UnixNano())
	if lag := reader.R.Status().Lag; lag < time.Second || lag > time.Minute {
		t.Errorf("Lag = %v, want a little over 1s", lag)
	}
	// A repair carries it as well.
	reader.Deaf()
	_, err = writer.W.Append(trace.ContextWithSpanContext(t.Context(), parent), []bus.Change{node("n", "b")}, observed)
	if err != nil {
		t.Fatal(err)
	}
	reader.OnLog(nil)
	w.Agree(writer, reader)
	cuts := reader.Cuts()
	equal(t, "trace after a repair", cuts[len(cuts)-1].Trace.TraceID(), parent.TraceID())
}
