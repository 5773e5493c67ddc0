package proxy

import (
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/bench/load"
)

// dialAll opens the connections of a row and uses each twice.
func dialAll(t *testing.T, r row, to hop) *load.Clients {
	t.Helper()
	all, err := dial(r, to)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func dial(r row, to hop) (*load.Clients, error) {
	return load.Dial(load.To{Addr: to.addr, Target: to.target, Conns: r.conns, Streams: r.streams}, patience)
}

// closedLoop sends on every connection as soon as the last answer is there, and
// returns how many were answered in which time.
func closedLoop(t *testing.T, all *load.Clients, d time.Duration) (requests int, took time.Duration) {
	t.Helper()
	requests, took, err := all.Closed(d)
	if err != nil {
		t.Fatal(err)
	}
	return requests, took
}

// openLoop sends at a fixed rate, whatever the answers do, and returns how long
// after its appointed time each was there.
func openLoop(t *testing.T, all *load.Clients, rate int, d time.Duration) []time.Duration {
	t.Helper()
	late, err := all.Open(rate, d)
	if err != nil {
		t.Fatal(err)
	}
	return late
}
