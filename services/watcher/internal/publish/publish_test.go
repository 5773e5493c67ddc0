package publish

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
	"github.com/weftmesh/weft/services/watcher/internal/source"
)

func TestLeadsOnlyWithTheCompleteList(t *testing.T) {
	bubble(t, func(r *rig) {
		r.put(namespaces("a"))
		r.says("")
		close(r.synced)
		lose := r.elected()
		defer lose()
		r.says("lead +a")
		if !r.p.Leading() {
			t.Error("Leading() = false")
		}
		r.put(namespaces("b"))
		r.says("append +b")
		r.remove(shape.Namespace, "a")
		r.says("append -a")
		r.put(namespaces("b"))
		r.says("") // equal rows are not even given to the log
		r.put(annotated("b", "x"))
		r.says("append +b")
	})
}

func TestStandbyKeepsUp(t *testing.T) {
	bubble(t, func(r *rig) {
		close(r.synced)
		r.put(namespaces("a", "b"))
		r.says("")
		lose := r.elected()
		r.says("lead +a +b")
		lose()
		r.says("resign")
		if r.p.Leading() {
			t.Error("Leading() = true after the lease was lost")
		}
		r.put(namespaces("c"))
		r.remove(shape.Namespace, "a")
		r.says("")
		lose = r.elected()
		defer lose()
		r.says("lead +b +c")
	})
}

func TestFailedAppendIsTriedAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		close(r.synced)
		lose := r.elected()
		defer lose()
		r.says("lead")
		r.failNext(errAway, errAway)
		r.put(namespaces("a"))
		r.says("append failed")
		r.put(namespaces("b")) // comes along with the next try
		r.says("append failed")
		r.put(namespaces("c"))
		r.says("append +a +b +c")
		time.Sleep(time.Hour) //nolint:forbidigo // virtual time
		r.says("")
	})
}

func TestRetriesAreBounded(t *testing.T) {
	bubble(t, func(r *rig) {
		close(r.synced)
		lose := r.elected()
		defer lose()
		r.says("lead")
		errs := make([]error, 1000)
		for i := range errs {
			errs[i] = errAway
		}
		r.failNext(errs...)
		r.put(namespaces("a"))
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		synctest.Wait()
		tries := strings.Count(r.read(), "append failed")
		// 0.1, 0.2, 0.4, 0.8, 1.6, then every 1.6 to 3.2 s
		if tries < 15 || tries > 45 {
			t.Errorf("%d tries in a minute, want some 25", tries)
		}
		r.failNext()
		time.Sleep(4 * time.Second) //nolint:forbidigo // virtual time
		r.says("append +a")
	})
}

// TestDeposedLeaderLeadsAgain: somebody raised the epoch although the lease is
// ours; the truth is published anew.
func TestDeposedLeaderLeadsAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		close(r.synced)
		lose := r.elected()
		defer lose()
		r.says("lead")
		r.failNext(fmt.Errorf("appending: %w", bus.ErrNotLeading))
		r.put(namespaces("a"))
		r.says("append failed; resign")
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		r.says("lead +a")
	})
}

// TestQuietLeaderNoticesThatItIsDeposed: with nothing to append, too.
func TestQuietLeaderNoticesThatItIsDeposed(t *testing.T) {
	bubble(t, func(r *rig) {
		close(r.synced)
		r.put(namespaces("a"))
		lose := r.elected()
		defer lose()
		r.says("lead +a")
		r.raise()
		time.Sleep(lookEvery) //nolint:forbidigo // virtual time
		r.says("resign; lead +a")
		if got := testutil.ToFloat64(r.p.meter.ousted); got != 1 {
			t.Errorf("%v oustings were counted, want 1", got)
		}
		if rep := r.p.Report(); rep.Total != 0 {
			t.Errorf("one ousting was reported: %+v", rep)
		}
	})
}

// TestLostLeaseIsNoOusting: whose lease ended has not met another writer.
func TestLostLeaseIsNoOusting(t *testing.T) {
	bubble(t, func(r *rig) {
		close(r.synced)
		lose := r.elected()
		r.says("lead")
		lose()
		r.says("resign")
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		r.says("")
		if got := testutil.ToFloat64(r.p.meter.ousted); got != 0 {
			t.Errorf("%v oustings were counted, want 0", got)
		}
	})
}

// TestTwoWritersGiveWay: they do not take the log from each other each second,
// and say so.
func TestTwoWritersGiveWay(t *testing.T) {
	bubble(t, func(r *rig) {
		close(r.synced)
		lose := r.elected()
		defer lose()
		r.says("lead")
		for range 600 {
			r.raise()
			time.Sleep(time.Second) //nolint:forbidigo // virtual time
		}
		synctest.Wait()
		if leads := strings.Count(r.read(), "lead"); leads < 20 || leads > 60 {
			t.Errorf("led %d times in 10 minutes, want some 30", leads)
		}
		if rep := r.p.Report(); rep.Total != 1 || rep.Skipped[0] != rival {
			t.Errorf("report %+v, want the other writer named", rep)
		}
		time.Sleep(time.Hour) //nolint:forbidigo // virtual time
		r.put(namespaces("a"))
		synctest.Wait()
		if !strings.HasSuffix(r.read(), "append +a") || r.p.Report().Total != 0 {
			t.Errorf("the other writer is gone, report %+v", r.p.Report())
		}
	})
}

// TestUnleasedStandsByWhileAnotherWrites: two watchers with directories would
// else turn every reader over; the second one leads when the first falls silent.
func TestUnleasedStandsByWhileAnotherWrites(t *testing.T) {
	bubble(t, func(r *rig) {
		r.p.cfg.Unleased = true
		r.put(namespaces("a"))
		r.hear()
		close(r.synced)
		lose := r.elected()
		defer lose()
		for range 60 {
			time.Sleep(time.Second) //nolint:forbidigo // virtual time
			r.hear()
			r.put(annotated("a", "x"))
		}
		r.says("")
		if rep := r.p.Report(); rep.Total != 1 || rep.Skipped[0] != rival {
			t.Errorf("report %+v, want the other writer named", rep)
		}
		time.Sleep(5 * time.Second) //nolint:forbidigo // virtual time
		r.says("lead +a")
		if rep := r.p.Report(); rep.Total != 0 {
			t.Errorf("report %+v, want nothing", rep)
		}
	})
}

// TestRowsLeftOutAreNotTriedAgain: the log has written the others.
func TestRowsLeftOutAreNotTriedAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		close(r.synced)
		lose := r.elected()
		defer lose()
		r.says("lead")
		r.failNext(fmt.Errorf("row a: %w", bus.ErrTooLarge))
		r.put(namespaces("a"))
		r.says("append failed")
		time.Sleep(time.Hour) //nolint:forbidigo // virtual time
		r.says("")
	})
}

func TestFailedLeadIsTriedAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		close(r.synced)
		r.failNext(errAway)
		lose := r.elected()
		defer lose()
		r.says("lead failed")
		time.Sleep(time.Second) //nolint:forbidigo // virtual time
		r.says("lead")
	})
}

// TestCheckBeforeEveryWrite (complaint D13): a lease that ran out unnoticed
// stops the very next write.
func TestCheckBeforeEveryWrite(t *testing.T) {
	bubble(t, func(r *rig) {
		close(r.synced)
		lose := r.elected()
		r.says("lead")
		r.set(func(w *world) { w.lost = errAway })
		r.put(namespaces("a"))
		r.says("resign")
		r.set(func(w *world) { w.lost = nil })
		lose()
		r.says("resign")
		lose = r.elected()
		defer lose()
		r.says("lead +a")
	})
}

// TestLeaseLostDuringLead: Resign may come before Lead has returned; the log
// must not be held afterwards.
func TestLeaseLostDuringLead(t *testing.T) {
	bubble(t, func(r *rig) {
		close(r.synced)
		ctx, cancel := context.WithCancel(r.t.Context())
		r.onLead = cancel
		r.terms <- ctx
		synctest.Wait()
		if got := r.read(); !strings.HasSuffix(got, "resign") || !strings.HasPrefix(got, "lead") {
			t.Errorf("the log was told %q, want the last word to be resign", got)
		}
		r.put(namespaces("a"))
		r.says("")
	})
}

func TestWhatABlindSourceCannotSeeStays(t *testing.T) {
	bubble(t, func(r *rig) {
		gone := bus.Change{Table: busv1.Table_TABLE_NAMESPACES, Key: bus.Key("gone"), Value: bus.Encode(&busv1.Namespace{Name: "gone"})}
		r.rows = []bus.Change{gone}
		r.set(func(w *world) {
			w.trouble = source.Trouble{Blind: true, Skipped: []source.Skipped{{Object: "x.yaml", Reason: "is broken"}}}
		})
		r.put(namespaces("a"))
		close(r.synced)
		lose := r.elected()
		defer lose()
		r.says("lead +a +gone")
		if rep := r.p.Report(); rep.Total != 1 || rep.Skipped[0].Object != "x.yaml" {
			t.Errorf("report %+v, want the file named", rep)
		}
		r.set(func(w *world) { w.trouble = source.Trouble{} })
		r.queue.Wake()
		r.says("append -gone")
	})
}

func TestReportIsBounded(t *testing.T) {
	bubble(t, func(r *rig) {
		close(r.synced)
		lose := r.elected()
		defer lose()
		var b strings.Builder
		for i := range 100 {
			fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Pod, metadata: {name: p%03d}, spec: 7}\n", i)
		}
		r.put(b.String())
		r.says("lead")
		rep := r.p.Report()
		if rep.Total != 100 || len(rep.Skipped) != maxNamed {
			t.Fatalf("%d of %d named, want 32 of 100", len(rep.Skipped), rep.Total)
		}
		if got, want := rep.Skipped[0], (source.Skipped{Object: "Pod default/p000", Reason: "spec: is a number where an object belongs"}); got != want {
			t.Errorf("first %+v, want %+v", got, want)
		}
		want := strings.NewReader("# HELP weft_watcher_skipped_objects Objects and files that are skipped, in part or whole; weft status names them.\n# TYPE weft_watcher_skipped_objects gauge\nweft_watcher_skipped_objects 100\n")
		if err := testutil.GatherAndCompare(r.reg, want, "weft_watcher_skipped_objects"); err != nil {
			t.Error(err)
		}
	})
}

// TestManyChangesTravelTogether: above some 500 changes a second they wait 10 ms
// for company; one change alone never waits.
func TestManyChangesTravelTogether(t *testing.T) {
	bubble(t, func(r *rig) {
		close(r.synced)
		lose := r.elected()
		defer lose()
		r.says("lead")
		for i := range 2000 {
			r.put(annotated(fmt.Sprintf("n%d", i%50), fmt.Sprintf("v%d", i)))
			time.Sleep(time.Millisecond) //nolint:forbidigo // virtual time: 1,000 changes a second
		}
		synctest.Wait()
		if n := strings.Count(r.read(), "append"); n < 100 || n > 800 {
			t.Errorf("%d batches for 2000 changes in 2 s, want the first 500 alone and the others by tens", n)
		}
		time.Sleep(3 * time.Second) //nolint:forbidigo // virtual time
		r.put(annotated("z", "one"))
		synctest.Wait()
		r.read()
		time.Sleep(2 * time.Second) //nolint:forbidigo // virtual time
		r.put(annotated("z", "two"))
		before := time.Now()
		r.says("append +z")
		if waited := time.Since(before); waited != 0 {
			t.Errorf("one change waited %v", waited)
		}
	})
}

func TestTraceOfOneChange(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	old := otel.GetTracerProvider()
	otel.SetTracerProvider(provider)
	defer otel.SetTracerProvider(old)
	bubble(t, func(r *rig) {
		close(r.synced)
		lose := r.elected()
		defer lose()
		r.says("lead")
		r.put(namespaces("a"))
		r.says("append +a")
		r.put(namespaces("a")) // changes nothing and leaves no trace
		r.says("")
		byName := make(map[string]tracetest.SpanStub)
		for _, s := range spans.GetSpans() {
			byName[s.Name] = s
		}
		event := byName["kubernetes event"]
		if len(byName) != 3 || len(spans.GetSpans()) != 3 {
			t.Fatalf("%d spans, want 3", len(spans.GetSpans()))
		}
		for _, name := range []string{"shape", "bus publish"} {
			if s := byName[name]; s.Parent.SpanID() != event.SpanContext.SpanID() {
				t.Errorf("span %q is not below %q", name, event.Name)
			}
		}
		carried := trace.SpanContextFromContext(r.ctx[0])
		if carried.SpanID() != byName["bus publish"].SpanContext.SpanID() {
			t.Error("the log's context does not carry the publishing span")
		}
	})
}

// TestCatchUp: a writer that comes back waits for the copy that others hold, but
// not for ever for one that nobody holds.
func TestCatchUp(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			if err := CatchUp(t.Context(), bustest.Memory().Join(""), statusOf(bus.Status{})); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(began); got < lonely || got > lonely+time.Second {
				t.Errorf("waited %v, want some %v", got, lonely)
			}
		})
	})
	t.Run("with peers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			st := bus.Status{HeardAt: began}
			if err := CatchUp(t.Context(), bustest.Memory().Join(""), statusOf(st)); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(began); got < laborious || got > laborious+time.Second {
				t.Errorf("waited %v, want some %v", got, laborious)
			}
		})
	})
	t.Run("complete", func(t *testing.T) {
		if err := CatchUp(t.Context(), bustest.Memory().Join(""), statusOf(bus.Status{Synced: true})); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("not connected", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mem := bustest.Memory()
			member := mem.Join("")
			mem.Cut(member)
			began := time.Now()
			go func() {
				time.Sleep(time.Hour) //nolint:forbidigo // virtual time
				mem.Heal(member)
			}()
			if err := CatchUp(t.Context(), member, statusOf(bus.Status{})); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(began); got < time.Hour {
				t.Errorf("went on after %v without a connection", got)
			}
		})
	})
	t.Run("stopped", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := CatchUp(ctx, bustest.Memory().Join(""), statusOf(bus.Status{})); err == nil {
			t.Error("no error although the context has ended")
		}
	})
}

type statusOf bus.Status

func (s statusOf) Status() bus.Status { return bus.Status(s) }
func (statusOf) All() []bus.Change    { return nil }
