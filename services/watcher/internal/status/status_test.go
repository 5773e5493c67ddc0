package status

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

const routes = busv1.Table_TABLE_ROUTES

var gr = schema.GroupResource{Group: "gateway.networking.k8s.io", Resource: "httproutes"}

func (x *world) expect(what string, patches []string, asks int) {
	x.t.Helper()
	got, asked := x.took()
	slices.Sort(got)
	if d := cmp.Diff(patches, got); d != "" {
		x.t.Errorf("%s: patched (-want +got):\n%s", what, d)
	}
	if asked != asks {
		x.t.Errorf("%s: policy was asked %d times, want %d", what, asked, asks)
	}
}

// TestWritesOnceAndOnlyOnChange: a status is written soon after its route's row,
// and again only when another is wanted.
func TestWritesOnceAndOnlyOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := begin(t)
		x.put("a", 1)
		x.put("b", 1)
		x.want(1, "a", "b")
		x.wrote(routes)
		x.expect("new routes", []string{"a", "b"}, 1)
		x.wrote(busv1.Table_TABLE_ENDPOINTS)
		x.expect("endpoints", nil, 0)
		for range 20 {
			x.w.Wrote([]bus.Change{{Table: routes}})
		}
		pass(200 * time.Millisecond)
		x.expect("a burst", nil, 1)
		pass(60 * time.Second)
		x.expect("a quiet minute", nil, 6)
		x.put("a", 2)
		x.wrote(routes)
		x.expect("policy still judges the generation before", nil, 1)
		x.want(2, "a", "b")
		x.wrote(routes)
		x.expect("the next generation of a, which b has not", []string{"a"}, 1)
		if !strings.Contains(x.conditions("a"), `"observedGeneration":2`) {
			t.Errorf("status %s", x.conditions("a"))
		}
		if n := x.counted("resource_status_patches_total"); n != 3 {
			t.Errorf("%v patches are counted, want 3", n)
		}
	})
}

// TestNoParentLeft: entries of ours go from a route that policy has no word for.
func TestNoParentLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := begin(t)
		x.put("a", 1)
		x.want(1, "a")
		x.wrote(routes)
		x.took()
		x.want(1)
		x.wrote(routes)
		x.expect("nobody's", []string{"a"}, 1)
		if got := x.conditions("a"); got != `{"parents":[]}` {
			t.Errorf("status %s", got)
		}
		pass(30 * time.Second)
		x.expect("later", nil, 3)
	})
}

// TestOnlyTheLeaderWrites: who does not lead does not even ask, and who stops to
// lead writes nothing more.
func TestOnlyTheLeaderWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := begin(t)
		names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
		for _, name := range names {
			x.put(name, 1)
		}
		x.want(1, names...)
		x.mu.Lock()
		x.fail = func(ctx context.Context, _ shape.ID) error {
			x.mu.Lock()
			x.lost = errors.New("the lease is not held any more")
			x.mu.Unlock()
			return nil
		}
		x.mu.Unlock()
		x.wrote(routes)
		got, _ := x.took()
		if len(got) == 0 || len(got) > workers {
			t.Errorf("%d statuses were written, want those under way when the lease was lost", len(got))
		}
		if n := x.counted("resource_status_patch_drops_total"); int(n) != len(names)-len(got) {
			t.Errorf("%v drops are counted, want %d", n, len(names)-len(got))
		}

		x.lead()
		x.mu.Lock()
		x.fail = func(ctx context.Context, _ shape.ID) error { <-ctx.Done(); return ctx.Err() }
		x.mu.Unlock()
		x.wrote(routes)
		x.endTerm()
		synctest.Wait()
		x.mu.Lock()
		x.term, x.fail = nil, nil
		x.mu.Unlock()
		x.took()
		x.wrote(routes)
		pass(time.Minute)
		x.expect("without a lease", nil, 0)
		if n := x.counted("resource_status_patch_timeouts_total"); n != 0 {
			t.Errorf("%v timeouts are counted, want none: the leadership ended first", n)
		}
	})
}

// TestPolicyIsBehindOrGone: it is asked again until it knows enough; while nobody
// answers, nothing is written.
func TestPolicyIsBehindOrGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := begin(t)
		x.put("a", 1)
		x.want(1, "a")
		x.refuse = func(n int) error {
			if n < 4 {
				return bus.ErrBehind
			}
			return nil
		}
		x.wrote(routes)
		pass(time.Second)
		x.expect("behind for a moment", []string{"a"}, 4)
		for _, err := range []error{bus.ErrNoPeers, errors.New("no")} {
			x.mu.Lock()
			x.refuse = func(int) error { return err }
			x.mu.Unlock()
			x.wrote(routes)
			x.expect(err.Error(), nil, 1)
		}
		x.mu.Lock()
		x.refuse = func(int) error { return bus.ErrBehind }
		x.mu.Unlock()
		x.wrote(routes)
		pass(5 * time.Second)
		x.expect("behind for long", nil, maxAsks)
	})
}

// TestAPIServerFails: errors are counted and end a round, and the next one goes on
// where it stopped.
func TestAPIServerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := begin(t)
		var names []string
		for i := range 40 {
			names = append(names, string(rune('a'+i/10))+string(rune('a'+i%10)))
			x.put(names[i], 1)
		}
		x.want(1, names...)
		x.mu.Lock()
		x.fail = func(ctx context.Context, id shape.ID) error { return apierrors.NewInternalError(errors.New("no")) }
		x.mu.Unlock()
		x.wrote(routes)
		x.expect("no answer is good", nil, 1)
		if n := x.counted("resource_status_patch_api_errors_total"); n < maxFails || n > maxFails+2*workers {
			t.Errorf("%v errors are counted, want about %d", n, maxFails)
		}
		x.mu.Lock()
		x.fail = func(ctx context.Context, id shape.ID) error { <-ctx.Done(); return ctx.Err() }
		x.mu.Unlock()
		pass(30 * time.Second)
		if n := x.counted("resource_status_patch_timeouts_total"); n < maxFails {
			t.Errorf("%v timeouts are counted, want %d", n, maxFails)
		}
		x.mu.Lock()
		x.fail = func(ctx context.Context, id shape.ID) error {
			if id.Name == "aa" {
				return apierrors.NewForbidden(gr, "aa", nil)
			}
			return nil
		}
		x.mu.Unlock()
		pass(20 * time.Second)
		got, _ := x.took()
		slices.Sort(got)
		if d := cmp.Diff(names[1:], got); d != "" {
			t.Errorf("one is refused: patched (-want +got):\n%s", d)
		}
	})
}

// TestChangedInBetween: what was decided on an older object is decided anew.
func TestChangedInBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := begin(t)
		x.put("a", 1)
		x.put("gone", 1)
		x.want(1, "a", "gone")
		first := true
		x.mu.Lock()
		x.fail = func(_ context.Context, id shape.ID) error {
			if id.Name == "gone" {
				return apierrors.NewNotFound(gr, "gone")
			}
			if first {
				first = false
				x.put("a", 1)
			}
			return nil
		}
		x.mu.Unlock()
		x.wrote(routes)
		x.expect("changed", nil, 1)
		pass(afterConflict + time.Second)
		x.expect("a second later", []string{"a"}, 1)
		if n := x.counted("resource_status_patch_api_errors_total"); n != 0 {
			t.Errorf("%v errors are counted, want none", n)
		}
	})
}

// TestOthersOfTheName: a status is for the object that was judged, not for one of
// the same name, nor for a kind that is not known.
func TestOthersOfTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := begin(t)
		x.put("a", 1)
		x.want(1, "a", "never")
		x.mu.Lock()
		x.wanted.Statuses[0].Uid = "another"
		x.wanted.Statuses = append(x.wanted.Statuses, &busv1.Status{Group: "example.org", Kind: "Route", Name: "a", Namespace: "grove"})
		x.mu.Unlock()
		x.wrote(routes)
		x.expect("another of the name", nil, 1)
	})
}

// TestServedIsSaidOnce: when every replica of policy has read a generation, and
// once for it, whatever comes and goes.
func TestServedIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := begin(t)
		hear := func(service, instance string, seq uint64, leaving bool) {
			x.heard <- &busv1.Presence{Service: service, Instance: instance, Epoch: 1, Seq: seq, Leaving: leaving}
		}
		x.put("a", 1)
		x.want(1, "a") // as of 1/2
		x.wrote(routes)
		x.expect("nobody is heard", []string{"a"}, 1)
		hear("policy", "one", 2, false)
		hear("policy", "two", 1, false)
		hear("destination", "other", 9, false)
		pass(10 * time.Second)
		x.expect("one is behind", nil, 1)
		hear("policy", "one", 5, false)
		hear("policy", "two", 2, false)
		x.want(1, "a") // the log goes on, and everybody is always a little behind
		pass(10 * time.Second)
		x.expect("all have it", []string{"a"}, 1)
		if got := x.conditions("a"); !strings.Contains(got, "all 2 replicas") {
			t.Errorf("status %s", got)
		}
		hear("policy", "two", 9, true)
		hear("policy", "three", 0, false)
		pass(time.Minute)
		x.expect("some come and go", nil, 6)
		x.put("a", 2)
		x.want(2, "a") // as of 1/4
		hear("policy", "three", 4, false)
		x.wrote(routes)
		x.expect("the next generation", []string{"a"}, 1)
		if got := x.conditions("a"); !strings.Contains(got, "the one replica") {
			t.Errorf("status %s", got)
		}
	})
}

// TestReplicasAreBounded: presences come over the bus, from anybody who may
// announce himself.
func TestReplicasAreBounded(t *testing.T) {
	var r replicas
	for i := range 3 * maxReplicas {
		r.hear(&busv1.Presence{Service: server, Instance: strings.Repeat("i", i)}, now)
	}
	if n, _ := r.reached(now); n != maxReplicas {
		t.Errorf("%d replicas are remembered, want %d", n, maxReplicas)
	}
	if n, _ := r.reached(now.Add(2 * silent)); n != 0 {
		t.Errorf("%d replicas that were not heard are remembered", n)
	}
}
