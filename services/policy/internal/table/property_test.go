package table

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/weftmesh/weft/bus"
)

const worlds = 20

// TestAnyOrderGivesOneAnswer lets the rows of random clusters arrive in random
// order, some of them in passing versions, some removed and put again, and
// compares the answers with those of one complete cut and with the model
// (complaints A30, D12, D18).
func TestAnyOrderGivesOneAnswer(t *testing.T) {
	for seed := range uint64(worlds) {
		r := rand.New(rand.NewPCG(seed, 1))
		objects := randomWorld(r)
		whole := New(denying(t))
		var all []bus.Change
		for _, o := range objects {
			all = append(all, o.put())
		}
		whole.Apply(Cut{Changes: all, Complete: true})

		late := New(denying(t))
		late.Apply(Cut{Complete: true})
		var gone []bus.Change
		// Versions of another world stand for what the objects were before.
		for _, o := range shuffled(r, randomWorld(r)) {
			late.Apply(Cut{Changes: []bus.Change{o.put()}})
			// A route's kind is a part of its key, so not every one comes again.
			if !slices.ContainsFunc(objects, func(now object) bool { return now.table == o.table && now.key == o.key }) {
				gone = append(gone, o.removed())
			}
		}
		for _, c := range gone {
			late.Apply(Cut{Changes: []bus.Change{c}})
		}
		for _, o := range shuffled(r, objects) {
			if r.IntN(3) == 0 {
				late.Apply(Cut{Changes: []bus.Change{o.removed()}})
			}
			late.Apply(Cut{Changes: []bus.Change{o.put()}})
		}
		for _, w := range workloads {
			for _, port := range ports {
				want, got := ask(t, whole, w, port), ask(t, late, w, port)
				if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
					t.Fatalf("seed %d, %v port %d (-at once +in order):\n%s", seed, w, port, diff)
				}
				var granted []string
				if servers := (model{objects}).servers(w, port); len(servers) > 0 {
					granted = (model{objects}).grants(servers[0])
				}
				if diff := cmp.Diff(granted, shown(got)); diff != "" {
					t.Fatalf("seed %d, %v port %d (-model +answer):\n%s", seed, w, port, diff)
				}
			}
		}
	}
}

// TestNeverOpen stops a shuffled log after every cut: under a denying default
// no authorization may appear that the final objects don't grant.
func TestNeverOpen(t *testing.T) {
	for seed := range uint64(worlds) {
		r := rand.New(rand.NewPCG(seed, 2))
		objects := randomWorld(r)
		tables := New(denying(t))
		tables.Apply(Cut{Complete: true})
		for _, o := range shuffled(r, objects) {
			tables.Apply(Cut{Changes: []bus.Change{o.put()}})
			for _, w := range workloads {
				for _, port := range ports {
					var granted []string
					for _, s := range (model{objects}).servers(w, port) {
						granted = append(granted, (model{objects}).grants(s)...)
					}
					for _, open := range shown(ask(t, tables, w, port)) {
						if !slices.Contains(granted, open) {
							t.Fatalf("seed %d, %v port %d: %q is open after %s/%s", seed, w, port, open, o.table, o.key)
						}
					}
				}
			}
		}
	}
}

// TestCompleteCutRemovesWhatItDoesNotName replaces one world by another.
func TestCompleteCutRemovesWhatItDoesNotName(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		tables := New(denying(t))
		put := func(objects []object) {
			var all []bus.Change
			for _, o := range objects {
				all = append(all, o.put())
			}
			tables.Apply(Cut{Changes: all, Complete: true})
		}
		put(randomWorld(r))
		// Half of another world: much is gone.
		half := shuffled(r, randomWorld(r))
		half = half[:len(half)/2]
		put(half)
		fresh := New(denying(t))
		for _, o := range half {
			fresh.Apply(Cut{Changes: []bus.Change{o.put()}, Complete: false})
		}
		fresh.complete = true
		for _, w := range workloads {
			for _, port := range ports {
				if diff := cmp.Diff(ask(t, fresh, w, port), ask(t, tables, w, port), protocmp.Transform()); diff != "" {
					t.Fatalf("seed %d, %v port %d (-fresh +replaced):\n%s", seed, w, port, diff)
				}
			}
		}
		put(nil)
		if n := len(tables.workloads) + len(tables.templates) + len(tables.scopes) + len(tables.services) +
			len(tables.addresses) + len(tables.rows.servers) + len(tables.rows.policies) + len(tables.rows.meshTLS) +
			len(tables.rows.networks) + len(tables.rows.uses) + len(tables.rows.authorizations) + len(tables.rows.limits) +
			len(tables.rows.grants) + len(tables.rows.egress) + len(tables.rows.facts) + len(tables.rows.routes.byKey) +
			len(tables.rows.routes.attached) + len(tables.rows.routes.users) + len(tables.rows.routes.verdicts) +
			len(tables.egress) + len(tables.routes) + len(tables.verdicts) + len(tables.limits); n != 0 {
			t.Fatalf("seed %d: %d entries left of nothing", seed, n)
		}
	}
}

func shuffled(r *rand.Rand, objects []object) []object {
	out := slices.Clone(objects)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
