package bus

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// TestConsumed follows a consumer through cuts, and through batches that change
// nothing, which it never sees.
func TestConsumed(t *testing.T) {
	r := &Reader{store: newStore(nil)}
	o := r.store.out
	is := func(what string, epoch, seq uint64) {
		t.Helper()
		if e, s := r.Consumed(); e != epoch || s != seq {
			t.Errorf("%s: %d/%d, want %d/%d", what, e, s, epoch, seq)
		}
	}
	nothing := func(epoch, seq uint64) { o.add(position{epoch, seq}, nil, time.Time{}, trace.SpanContext{}) }
	something := func(epoch, seq uint64) {
		o.add(position{epoch, seq}, []Change{put(1, "a", "x")}, time.Time{}, trace.SpanContext{})
	}
	takes := func(want bool) {
		t.Helper()
		if _, _, ok := o.take(); ok != want {
			t.Errorf("take() = %v, want %v", ok, want)
		}
	}
	o.attach()
	takes(false)
	is("nothing has come", 0, 0)
	something(7, 1)
	is("it has not looked", 0, 0)
	takes(true)
	is("it is busy", 0, 0)
	nothing(7, 2)
	is("it is still busy", 0, 0)
	takes(false)
	is("it has done all", 7, 2)
	nothing(8, 0)
	is("a new writer changes nothing", 8, 0)
	something(8, 1)
	nothing(8, 2)
	is("a change waits", 8, 0)
	takes(true)
	takes(false)
	is("it has done that, too", 8, 2)
}
