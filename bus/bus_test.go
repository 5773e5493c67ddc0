package bus_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

func node(name, zone string) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_NODES, Key: bus.Key(name), Value: bus.Encode(&busv1.Node{Name: name, Zone: zone})}
}

func TestFirstCutIsCompleteThenDifferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		mem := bustest.Memory()
		lead := bus.NewReader(mem.Join(""), bus.ReaderConfig{})
		w := bus.NewWriter(mem.Join(""), lead, bus.WriterConfig{})
		follow := bus.NewReader(mem.Join(""), bus.ReaderConfig{})
		for _, run := range []func(context.Context) error{lead.Run, w.Run, follow.Run} {
			go func() { _ = run(ctx) }()
		}
		if err := w.Lead(ctx, []bus.Change{node("a", "z1"), node("b", "z1")}); err != nil {
			t.Fatal(err)
		}
		cuts := make(chan bus.Cut, 10)
		go func() {
			for cut, err := range follow.Read(ctx) {
				if err != nil {
					return
				}
				cuts <- cut
			}
		}()
		first := <-cuts
		if !first.Complete || len(first.Changes) != 2 {
			t.Fatalf("first cut = %+v, want 2 rows, complete", first)
		}
		if _, err := w.Append(ctx, []bus.Change{node("a", "z2"), node("b", "z1")}, time.Now()); err != nil {
			t.Fatal(err)
		}
		second := <-cuts
		if second.Complete || len(second.Changes) != 1 || second.Changes[0].Key != "a" {
			t.Fatalf("second cut = %+v, want node a alone", second)
		}
	})
}
