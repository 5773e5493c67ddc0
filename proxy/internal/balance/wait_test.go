package balance

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestFailfastStartsAnew: only waiting for an endpoint counts towards failing fast.
// An endpoint that comes in time ends it, and the next who waits does so from the
// start.
func TestFailfastStartsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gates []bool
		b := build(func(c *Config[string, *conn]) {
			c.Failfast = 3 * time.Second
			c.Gate = func(open bool) { gates = append(gates, open) }
		})
		for range 3 { // together longer than anybody may wait
			time.AfterFunc(2*time.Second, func() { b.Set([]string{"a"}) })
			l, err := b.Acquire(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			l.End(Success)
			b.Set(nil)
		}
		if len(gates) != 0 {
			t.Errorf("the gate has turned: %v", gates)
		}
		began := time.Now()
		if _, err := b.Acquire(t.Context(), nil); !errors.Is(err, ErrFailfast) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		// Changes of the set that bring nothing do not begin it anew.
		b = build(func(c *Config[string, *conn]) { c.Failfast = 3 * time.Second })
		began = time.Now()
		for i := range 5 {
			time.AfterFunc(time.Duration(i)*time.Second/2, func() { b.Set(nil) })
		}
		if _, err := b.Acquire(t.Context(), nil); !errors.Is(err, ErrFailfast) || time.Since(began) != 3*time.Second {
			t.Errorf("with an empty set, again and again: %v after %v", err, time.Since(began))
		}
		// A terminal error reaches who waits, and who comes later.
		b = build(func(c *Config[string, *conn]) { c.Failfast = 3 * time.Second })
		why := errors.New("refused for good")
		got := make(chan error)
		go func() { _, err := b.Acquire(t.Context(), nil); got <- err }()
		synctest.Wait()
		b.Close(why)
		if err := <-got; !errors.Is(err, why) {
			t.Errorf("who waits is told %v", err)
		}
		if _, err := b.Acquire(t.Context(), nil); !errors.Is(err, why) {
			t.Errorf("who comes later is told %v", err)
		}
	})
}
