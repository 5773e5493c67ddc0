// Package logtest is the conformance suite of the log: whatever carries it must
// pass every case, with the faults that a network has put between. A kind of
// transport is a Rig; the cases know nothing else of it.
package logtest

import (
	"testing"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Bus connects processes to one empty bus.
type Bus interface {
	Join(cluster string) bus.Transport
}

// Rig is one kind of transport.
type Rig struct {
	Name string
	New  func(t testing.TB) Bus
	// Damage changes a row in a reader's copy behind its back.
	Damage func(r *bus.Reader, table busv1.Table, key string)
}

// Case is one promise of the log.
type Case struct {
	Name string
	Run  func(t *testing.T, w *World)
}

// Run runs every case on a bus of its own.
func Run(t *testing.T, rig Rig) {
	t.Helper()
	for _, c := range Cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, newWorld(t, rig))
		})
	}
}
