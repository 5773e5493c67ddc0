package wire

import "testing"

func TestEbb(t *testing.T) {
	const mb = 1 << 20
	var e ebb
	for i, tt := range []struct {
		allocated, held uint64 // in MB
		want            bool
	}{
		{10, 10, false},  // the start
		{300, 90, false}, // a burst
		{600, 90, false}, // goes on
		{600, 90, true},  // is over
		{600, 89, false}, // for it could not give back more
		{600, 95, true},  // more has come, nothing was said of it
		{600, 20, false},
		{600, 25, true},
	} {
		got := e.due(levels{tt.allocated * mb, tt.held * mb})
		if got != tt.want {
			t.Errorf("look %d: %v, want %v", i, got, tt.want)
		}
		if got {
			e.held = tt.held * mb
		}
	}
}
