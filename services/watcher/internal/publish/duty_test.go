package publish

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// TestTermAndWrote: who writes elsewhere under this leadership has it for as long
// as it lasts, with the same check, and hears of the rows that the log has taken,
// the cluster's own among them.
func TestTermAndWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d := newWorld(), new(diary)
		var mu sync.Mutex
		told := ""
		took := func() string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			out := told
			told = ""
			return out
		}
		p := New(w, d, d, Config{
			Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
			Cluster: &busv1.Cluster{Name: "east", Domain: "cluster.local"},
			Wrote: func(changes []bus.Change) {
				mu.Lock()
				defer mu.Unlock()
				told += keys(changes)
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		parts.Go(func() { _ = p.Run(ctx) })
		parts.Go(func() { _ = p.Elect(ctx) })
		defer func() { cancel(); parts.Wait() }()
		close(w.synced)
		w.put(namespaces("a"))
		if _, _, ok := p.Term(); ok || took() != "" {
			t.Error("a standby has a term, or has written")
		}
		term, lose := context.WithCancel(t.Context())
		w.terms <- term
		if got := took(); got != " +east +a" {
			t.Errorf("told of%s, want the whole truth", got)
		}
		ends, check, ok := p.Term()
		if !ok || ends.Err() != nil || check() != nil {
			t.Fatalf("Term() = %v, %t", ends, ok)
		}
		w.put(namespaces("b"))
		w.remove(shape.Namespace, "a")
		if got := took(); got != " +b -a" {
			t.Errorf("told of%s", got)
		}
		d.failNext(errAway)
		w.put(namespaces("c"))
		if got := took(); got != "" {
			t.Errorf("told of%s, which the log did not take", got)
		}
		lost := errors.New("the lease is not held any more")
		w.set(func(w *world) { w.lost = lost })
		if err := check(); !errors.Is(err, lost) {
			t.Errorf("check() = %v, want %v", err, lost)
		}
		lose()
		synctest.Wait()
		if _, _, ok := p.Term(); ok || ends.Err() == nil {
			t.Error("the term goes on after the lease was lost")
		}
	})
}
