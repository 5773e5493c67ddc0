package bus_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	"github.com/weftmesh/weft/bus/internal/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	logtest.Run(t, logtest.Rig{
		Name:   "memory",
		New:    func(testing.TB) logtest.Bus { return bustest.Memory() },
		Damage: bus.Damage,
	})
}

func TestNATS(t *testing.T) {
	logtest.Run(t, logtest.Rig{
		Name:   "NATS",
		New:    func(t testing.TB) logtest.Bus { return bustest.NATS(t) },
		Damage: bus.Damage,
	})
}
