package serve

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestOneClientCannotHaveEverything: the streams of a client are bounded, with a
// status that says so; others are served, and what ends makes room.
func TestOneClientCannotHaveEverything(t *testing.T) {
	r := newRig(t, Config{ClientStreams: 3, Streams: 5})
	r.apply("service grove/plum port=:80\nendpoint grove/plum/s/10.0.0.1 port=:80")
	const greedy, modest = `{"ns":"grove","pod":"greedy"}`, `{"ns":"grove","pod":"modest"}`
	var open []*getter
	for range 3 {
		g := r.get(plum, greedy)
		g.want("+10.0.0.1:80")
		open = append(open, g)
	}
	if _, err := within(r.get(plum, greedy).recv); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many of a client: %v, want ResourceExhausted", err)
	}
	for range 2 {
		r.get(plum, modest).want("+10.0.0.1:80")
	}
	if _, err := within(r.get(plum, modest).recv); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many of all: %v, want ResourceExhausted", err)
	}
	open[0].cancel()
	eventually(t, "let in again", func() bool {
		_, err := within(r.get(plum, greedy).recv)
		return err == nil
	})
}
