package logtest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weftmesh/weft/bus"
)

// loseBatches loses the first n batches that arrive at p from now on.
func loseBatches(p *Process, n int) {
	p.OnLog(func(m bus.Message) []bus.Message {
		if n > 0 && m.Header["K"] == "batch" {
			n--
			return nil
		}
		return []bus.Message{m}
	})
}

func lostBatch(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	writer.Lead(nodes(10, "a")...)
	w.Agree(writer, reader)
	before := len(reader.Cuts())
	loseBatches(reader, 3)
	for i := range 6 {
		writer.Append(node(fmt.Sprint("new-", i), "b"))
	}
	w.Agree(writer, reader)
	equal(t, "changes told", reader.Changes(before), 6)
	equal(t, "repaired by range", reader.Metric("weft_bus_repairs_total", "kind=range") >= 1, true)
	equal(t, "snapshots since the start", reader.Metric("weft_bus_repairs_total", "kind=snapshot"), 1)
	equal(t, "gaps", reader.Metric("weft_bus_gaps_total") >= 1, true)
}

func lostLast(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	writer.Lead(nodes(10, "a")...)
	w.Agree(writer, reader)
	loseBatches(reader, 1)
	writer.Append(node("last", "b"))
	w.Agree(writer, reader)
	equal(t, "gaps", reader.Metric("weft_bus_gaps_total"), 1)
}

func lostPart(t *testing.T, w *World) {
	for lost := range 3 {
		writer, reader := w.Start("writer"), w.Start("reader")
		writer.Lead(node("a", "a"))
		w.Agree(writer, reader)
		before, part := len(reader.Cuts()), -1
		reader.OnLog(func(m bus.Message) []bus.Message {
			if m.Header["K"] == "batch" {
				if part++; part == lost {
					return nil
				}
			}
			return []bus.Message{m}
		})
		writer.Append(nodes(5000, fmt.Sprint("z", lost))...) // three parts
		w.Agree(writer, reader)
		equal(t, "changes told", reader.Changes(before), 5000)
		equal(t, "cuts told", len(reader.Cuts())-before, 1)
		writer.Stop()
		reader.Stop()
	}
}

func lostMany(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	writer.Lead(nodes(10, "a")...)
	w.Agree(writer, reader)
	before := len(reader.Cuts())
	var lost atomic.Int64
	reader.OnLog(func(m bus.Message) []bus.Message {
		if m.Header["K"] == "batch" {
			lost.Add(1)
		}
		return nil
	})
	for i := range 400 {
		writer.Append(node("same", noise(i, 1000)))
	}
	w.Until("all are lost", func() error { // they may still be on their way
		if n := lost.Load(); n < 400 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	reader.OnLog(nil)
	w.Agree(writer, reader)
	equal(t, "changes told", reader.Changes(before), 1)
	equal(t, "snapshots", reader.Metric("weft_bus_repairs_total", "kind=snapshot"), 2)
}

func repeated(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	writer.Lead(nodes(10, "a")...)
	w.Agree(writer, reader)
	before := len(reader.Cuts())
	reader.OnLog(func(m bus.Message) []bus.Message { return []bus.Message{m, m} })
	for i := range 10 {
		writer.Append(node("same", fmt.Sprint(i)))
		writer.Append(nodes(2500, fmt.Sprint(i))...)
	}
	w.Agree(writer, reader)
	equal(t, "gaps", reader.Metric("weft_bus_gaps_total"), 0)
	equal(t, "duplicates counted", reader.Metric("weft_bus_duplicates_total") >= 20, true)
	last := uint64(0)
	for _, cut := range reader.Cuts()[before:] {
		if cut.Seq <= last {
			t.Errorf("cut %d after %d", cut.Seq, last)
		}
		last = cut.Seq
	}
}

func reordered(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	writer.Lead(nodes(10, "a")...)
	w.Agree(writer, reader)
	var held []bus.Message
	reader.OnLog(func(m bus.Message) []bus.Message {
		if m.Header["K"] == "beacon" {
			return []bus.Message{m}
		}
		held = append(held, m)
		if len(held) < 3 {
			return nil
		}
		out := []bus.Message{held[2], held[0], held[1]}
		held = nil
		return out
	})
	for i := range 30 {
		writer.Append(node("same", fmt.Sprint(i)), node(fmt.Sprint("n", i), "a"))
	}
	w.Agree(writer, reader)
	equal(t, "mismatches", reader.Metric("weft_bus_digest_mismatches_total"), 0)
}

func unreadable(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	writer.Lead(nodes(10, "a")...)
	w.Agree(writer, reader)
	var once sync.Once
	reader.OnLog(func(m bus.Message) []bus.Message {
		if m.Header["K"] == "batch" {
			once.Do(func() { m.Data = []byte{0, 0xff, 0xff} })
		}
		return []bus.Message{
			{Subject: m.Subject, Header: bus.Header{"E": "x"}, Data: m.Data},
			m,
		}
	})
	writer.Append(node("one", "a"))
	writer.Append(node("two", "a"))
	w.Agree(writer, reader)
	equal(t, "malformed counted", reader.Metric("weft_bus_malformed_total") >= 2, true)
}

// slowConnection: the reader's own queue overflows before it is looked at,
// which a burst of big cuts does while the reader is not running.
func slowConnection(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	writer.Lead(nodes(10, "a")...)
	w.Agree(writer, reader)
	var backlog []bus.Message
	var mu sync.Mutex
	reader.OnLog(func(m bus.Message) []bus.Message {
		mu.Lock()
		defer mu.Unlock()
		backlog = append(backlog, m)
		return nil
	})
	for i := range 60 {
		writer.Append(node("a", noise(i, 200<<10)), node("b", noise(i+1000, 200<<10)))
	}
	w.Until("all is in the backlog", func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(backlog) < 60 {
			return fmt.Errorf("%d", len(backlog))
		}
		return nil
	})
	reader.OnLog(func(m bus.Message) []bus.Message {
		mu.Lock()
		defer mu.Unlock()
		out := append(backlog, m)
		backlog = nil
		return out
	})
	writer.Append(node("c", "c"))
	w.Agree(writer, reader)
}

func muteWriter(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	writer.Lead(nodes(10, "a")...)
	w.Agree(writer, reader)
	writer.Mute(true)
	for i := range 10 {
		writer.Append(node(fmt.Sprint("unsent-", i), "b"))
	}
	equal(t, "unsent counted", writer.Metric("weft_bus_unsent_messages_total") >= 10, true)
	writer.Mute(false)
	w.Agree(writer, reader)
}

func resigned(t *testing.T, w *World) {
	writer, reader := w.Start("writer"), w.Start("reader")
	if _, err := writer.W.Append(t.Context(), nodes(1, "a"), noTime); !errors.Is(err, bus.ErrNotLeading) {
		t.Errorf("Append() before Lead = %v, want %v", err, bus.ErrNotLeading)
	}
	writer.Lead(nodes(10, "a")...)
	w.Agree(writer, reader)
	sent := writer.published.Load()
	writer.W.Resign()
	if _, err := writer.W.Append(t.Context(), nodes(10, "b"), noTime); !errors.Is(err, bus.ErrNotLeading) {
		t.Errorf("Append() after Resign = %v, want %v", err, bus.ErrNotLeading)
	}
	equal(t, "leading", writer.W.Leading(), false)
	equal(t, "messages", writer.published.Load(), sent)
	writer.Lead(nodes(10, "c")...)
	w.Agree(writer, reader)
}
