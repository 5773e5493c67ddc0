package table

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/weftmesh/weft/bus"
)

// TestForksGoTheirOwnWay changes what was forked and what it was forked from, in
// turns: neither sees the other's changes.
func TestForksGoTheirOwnWay(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 6))
		before, after := randomWorld(r), shuffled(r, randomWorld(r))
		of := func(objects []object) (*Tables, []bus.Change) {
			var all []bus.Change
			for _, o := range objects {
				all = append(all, o.put())
			}
			tables := New(denying(t))
			tables.Apply(Cut{Changes: all, Complete: true})
			return tables, all
		}
		tables, all := of(before)
		want, _ := of(before)
		fork, err := tables.Fork()
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range after {
			fork.Apply(Cut{Changes: []bus.Change{o.put()}})
		}
		same(t, seed, "the tables", want, tables)
		fork.Apply(Cut{Changes: all, Complete: true})
		for _, o := range after {
			tables.Apply(Cut{Changes: []bus.Change{o.put()}})
		}
		same(t, seed, "the fork", want, fork)
	}
}

func same(t *testing.T, seed uint64, what string, want, got *Tables) {
	t.Helper()
	for _, w := range workloads {
		for _, port := range ports {
			if diff := cmp.Diff(ask(t, want, w, port), ask(t, got, w, port), protocmp.Transform()); diff != "" {
				t.Fatalf("seed %d: %s, %v port %d (-want +got):\n%s", seed, what, w, port, diff)
			}
		}
	}
}
