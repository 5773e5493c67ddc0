package drain

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitsForWhatIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New()
		first, second := d.Hold(), d.Hold()
		first()
		first() // counts once
		done := make(chan error, 1)
		go func() { done <- d.Wait(t.Context()) }()
		second()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("Wait = %v before the drain", err)
		default:
		}
		third := d.Hold()
		d.Begin()
		d.Begin()
		synctest.Wait()
		if d.Open() != 1 || !d.Started() || len(done) != 0 {
			t.Errorf("open %d, started %v, done %d", d.Open(), d.Started(), len(done))
		}
		third()
		if err := <-done; err != nil {
			t.Errorf("Wait = %v", err)
		}
		d.Hold()() // after the end: harmless
	})
}

func TestGraceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New()
		d.Hold()
		d.Begin()
		late := errors.New("late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, late)
		defer cancel()
		if err := d.Wait(ctx); !errors.Is(err, late) {
			t.Errorf("Wait = %v", err)
		}
	})
}

func TestNothingOpen(t *testing.T) {
	d := New()
	d.Begin()
	if err := d.Wait(t.Context()); err != nil {
		t.Errorf("Wait = %v", err)
	}
}
