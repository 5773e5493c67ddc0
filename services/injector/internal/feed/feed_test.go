package feed

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// cuts is a log that a test writes into.
type cuts chan bus.Cut

func (c cuts) Read(ctx context.Context) iter.Seq2[bus.Cut, error] {
	return func(yield func(bus.Cut, error) bool) {
		for {
			select {
			case cut := <-c:
				if !yield(cut, nil) {
					return
				}
			case <-ctx.Done():
				yield(bus.Cut{}, ctx.Err())
				return
			}
		}
	}
}

func set(name, inject string) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_NAMESPACES, Key: bus.Key(name), Value: bus.Encode(&busv1.Namespace{
		Name: name, Annotations: map[string]string{"linkerd.io/inject": inject},
	})}
}

func TestAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := cuts(make(chan bus.Cut))
		f := New(log)
		var gone []string
		f.Gone = func(namespace string) { gone = append(gone, namespace) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()

		begun := time.Now()
		if _, err := f.Annotations(ctx, "pottery"); err == nil {
			t.Error("Annotations() of an unknown namespace = nil")
		}
		if waited := time.Since(begun); waited != Wait {
			t.Errorf("waited %s, want %s", waited, Wait)
		}

		log <- bus.Cut{Complete: true, Changes: []bus.Change{
			set("pottery", "enabled"),
			{Table: busv1.Table_TABLE_NODES, Key: "n", Value: []byte{}},
			{Table: busv1.Table_TABLE_NAMESPACES, Key: "broken", Value: []byte{0xff}},
		}}
		synctest.Wait()
		want := map[string]string{"linkerd.io/inject": "enabled"}
		got, err := f.Annotations(ctx, "pottery")
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("Annotations() error %v, (-want +got):\n%s", err, diff)
		}

		// A request for a namespace that arrives a moment later waits for it.
		answered := make(chan error, 1)
		go func() { _, err := f.Annotations(ctx, "glaze"); answered <- err }()
		synctest.Wait()
		log <- bus.Cut{Changes: []bus.Change{set("glaze", "disabled")}}
		if err := <-answered; err != nil {
			t.Errorf("Annotations() = %v", err)
		}

		log <- bus.Cut{Changes: []bus.Change{{Table: busv1.Table_TABLE_NAMESPACES, Key: bus.Key("pottery")}}}
		synctest.Wait()
		if _, err := f.Annotations(ctx, "pottery"); err == nil {
			t.Error("Annotations() of a removed namespace = nil")
		}
		// A complete cut replaces everything.
		log <- bus.Cut{Complete: true, Changes: []bus.Change{set("pottery", "enabled")}}
		synctest.Wait()
		if _, err := f.Annotations(ctx, "glaze"); err == nil {
			t.Error("Annotations() of a namespace that a complete cut lacks = nil")
		}
		if diff := cmp.Diff([]string{"pottery"}, gone); diff != "" {
			t.Errorf("namespaces told as gone (-want +got):\n%s", diff)
		}
		cancel()
		if err := <-done; err == nil {
			t.Error("Run() after the end = nil")
		}
	})
}

// Requests about namespaces that never were do not take all the turns: what
// is more than some is told at once.
func TestFewWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(cuts(make(chan bus.Cut)))
		answered := make(chan time.Duration, 3*maxWaiting)
		begun := time.Now()
		for range cap(answered) {
			go func() {
				if _, err := f.Annotations(t.Context(), "nowhere"); !errors.Is(err, ErrUnknown) {
					t.Errorf("Annotations() = %v", err)
				}
				answered <- time.Since(begun)
			}()
		}
		took := map[time.Duration]int{}
		for range cap(answered) {
			took[<-answered]++
		}
		if diff := cmp.Diff(map[time.Duration]int{0: 2 * maxWaiting, Wait: maxWaiting}, took); diff != "" {
			t.Errorf("answers by when (-want +got):\n%s", diff)
		}
	})
}

func TestNoneKnowsEveryNamespace(t *testing.T) {
	if got, err := (None{}).Annotations(t.Context(), "pottery"); got != nil || err != nil {
		t.Errorf("Annotations() = %v, %v", got, err)
	}
}
