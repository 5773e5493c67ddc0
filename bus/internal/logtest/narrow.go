package logtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// StartOnly starts a process that keeps the rows of nodes alone.
func (w *World) StartOnly(name string) *Process {
	w.t.Helper()
	p := &Process{Name: name, t: w.t, Tap: &Tap{Transport: w.bus.Join("")}, view: map[string]string{}, Reg: prometheus.NewRegistry()}
	p.R = bus.NewReader(p.Tap, bus.ReaderConfig{
		Silence: silence, Registry: p.Reg, Tables: []busv1.Table{busv1.Table_TABLE_NODES},
	})
	p.W = bus.NewWriter(p.Tap, p.R, bus.WriterConfig{BeaconEvery: beacon})
	w.t.Cleanup(p.Stop)
	p.Go()
	return p
}

// AgreeOnNodes is Agree for readers of that table.
func (w *World) AgreeOnNodes(writer *Process, others ...*Process) {
	w.t.Helper()
	want := map[string]string{}
	for _, c := range writer.R.Rows(busv1.Table_TABLE_NODES) {
		want[c.Table.String()+" "+c.Key] = string(c.Value)
	}
	for _, p := range others {
		w.Until(p.Name+" agrees with "+writer.Name, func() error {
			ws, ps := writer.R.Status(), p.R.Status()
			if ws.Epoch != ps.Epoch || ws.Seq != ps.Seq {
				return fmt.Errorf("at (%d, %d), the writer at (%d, %d)", ps.Epoch, ps.Seq, ws.Epoch, ws.Seq)
			}
			if bad := differ(want, rows(p.R)); len(bad) > 0 {
				return fmt.Errorf("%d rows of the copy differ: %.500q", len(bad), bad)
			}
			if bad := differ(want, p.viewed()); len(bad) > 0 {
				return fmt.Errorf("%d rows that the consumer was told differ: %.500q", len(bad), bad)
			}
			return nil
		})
	}
}

func namespace(name string, n int) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_NAMESPACES, Key: bus.Key(name), Value: bus.Encode(&busv1.Namespace{Name: name, Uid: noise(n, 1000)})}
}

// namespaces are n rows of about 1 KB that a reader of nodes must not keep.
func namespaces(n int) []bus.Change {
	out := make([]bus.Change, n)
	for i := range out {
		out[i] = namespace(fmt.Sprintf("ns-%05d", i), i)
	}
	return out
}

func narrow(t *testing.T, w *World) {
	writer := w.Start("writer")
	writer.Lead(append(namespaces(5000), nodes(100, "a")...)...) // more than one chunk
	late := w.StartOnly("narrow")                                // by snapshot
	w.AgreeOnNodes(writer, late)
	held := late.Metric("weft_bus_row_bytes")
	for i := range 20 {
		writer.Append(namespace("new", i), node(fmt.Sprint("new-", i), "b"), noNode(fmt.Sprint("new-", i-1)))
		writer.Append(namespace("other", i))
	}
	writer.Append(noNode("new-19"))
	w.AgreeOnNodes(writer, late)
	w.Until("the sums are compared", func() error {
		if n := late.Metric("weft_bus_rows"); n != 100 {
			return fmt.Errorf("%v rows are counted, want 100", n)
		}
		return nil
	})
	equal(t, "bytes of rows", late.Metric("weft_bus_row_bytes"), held)
	equal(t, "mismatches", late.Metric("weft_bus_digest_mismatches_total"), 0)
	for _, cut := range late.Cuts() {
		for _, c := range cut.Changes {
			if c.Table != busv1.Table_TABLE_NODES {
				t.Fatalf("the consumer was told of %v %q", c.Table, c.Key)
			}
		}
	}
}

func narrowRepairs(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.StartOnly("narrow")
	writer.Lead(append(namespaces(10), nodes(10, "a")...)...)
	w.AgreeOnNodes(writer, reader)
	before := len(reader.Cuts())
	loseBatches(reader, 5)
	for i := range 6 {
		writer.Append(node(fmt.Sprint("new-", i), "b"), namespace("new", i))
	}
	w.AgreeOnNodes(writer, reader)
	equal(t, "changes told", reader.Changes(before), 6)
	equal(t, "repaired by range", reader.Metric("weft_bus_repairs_total", "kind=range") >= 1, true)
	// A new leader's difference is applied, too.
	next := w.Start("next")
	w.Agree(writer, next)
	writer.W.Resign()
	next.Lead(append(namespaces(3), nodes(12, "c")...)...)
	w.AgreeOnNodes(next, reader)
	equal(t, "mismatches", reader.Metric("weft_bus_digest_mismatches_total"), 0)
}

func narrowHeals(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.StartOnly("narrow")
	writer.Lead(append(namespaces(3000), nodes(100, "a")...)...)
	w.AgreeOnNodes(writer, reader)
	w.rig.Damage(reader.R, busv1.Table_TABLE_NODES, bus.Key("node-000007"))
	w.Until("the table is named", func() error {
		if reader.Metric("weft_bus_digest_mismatches_total", "table=nodes") == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	// What comes while the snapshot does lies above it.
	for i := range 50 {
		writer.Append(node("busy", fmt.Sprint(i)))
		writer.Append(namespace("busy", i))
	}
	w.AgreeOnNodes(writer, reader)
	equal(t, "other tables named", reader.Metric("weft_bus_digest_mismatches_total", "table=namespaces"), 0)
}

func narrowIsSilent(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.StartOnly("narrow")
	writer.Lead(append(namespaces(10), nodes(10, "a")...)...)
	w.AgreeOnNodes(writer, reader)
	if err := reader.W.Lead(t.Context(), nil); err == nil {
		t.Error("a writer leads on a part of the log")
	}
	if _, err := reader.W.Append(t.Context(), nodes(1, "x"), time.Now()); !errors.Is(err, bus.ErrNotLeading) {
		t.Errorf("Append() = %v, want %v", err, bus.ErrNotLeading)
	}
	writer.Stop()
	asker := w.bus.Join("")
	ask := bus.Encode(&busv1.Ask{Reason: busv1.Reason_REASON_START, Peer: "somebody"})
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if body, err := asker.Request(ctx, "weft.local.ask", ask); !errors.Is(err, bus.ErrNoPeers) {
		t.Errorf("asking when only the reader of some tables is left: %d bytes, %v; want %v", len(body), err, bus.ErrNoPeers)
	}
	equal(t, "answers", reader.Metric("weft_bus_answers_total"), 0)
	// It serves on what it has.
	equal(t, "rows", len(rows(reader.R)), 10)
}
