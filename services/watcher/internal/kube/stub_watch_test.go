package kube

import (
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

func pods(names ...string) []any {
	var out []any
	for _, n := range names {
		out = append(out, thing(n, fields{"status": fields{"phase": "Running"}}))
	}
	return out
}

// TestFirstListIsStreamed (WatchList): of a server that offers it every kind is
// read by one watch and no list.
func TestFirstListIsStreamed(t *testing.T) {
	s := newStub(t)
	s.streams = true
	s.objects["pods"] = pods("a", "b")
	r := s.source().ready()
	r.named("Pod grove/a", "Pod grove/b")
	want := map[string]int{}
	for _, name := range core {
		want[name] = 1
	}
	if diff := cmp.Diff(want, s.counts(s.watches)); diff != "" {
		t.Errorf("watches (-want +got)\n%s", diff)
	}
	if got := s.counts(s.lists); len(got) > 0 {
		t.Errorf("lists %v, want none", got)
	}
}

// TestFirstListIsNotStreamed: a server that does not offer it is asked for a list.
func TestFirstListIsNotStreamed(t *testing.T) {
	s := newStub(t)
	s.objects["pods"] = pods("a", "b")
	r := s.source().ready()
	r.named("Pod grove/a", "Pod grove/b")
	if got := slices.Sorted(maps.Keys(s.counts(s.lists))); !slices.Equal(got, core) {
		t.Errorf("lists of %v, want of %v", got, core)
	}
	for name, n := range s.counts(s.refused) {
		if n != 1 {
			t.Errorf("%s: asked %d times for a streamed list, which was refused", name, n)
		}
	}
	until(t, "each is watched", func() bool { return len(s.counts(s.watches)) == len(core) })
}

// TestPastIsGone (410): what happened in between is found by a new list, which
// names what is gone too.
func TestPastIsGone(t *testing.T) {
	for _, streams := range []bool{true, false} {
		s := newStub(t)
		s.streams = streams
		s.objects["pods"] = pods("a", "b")
		ready, expire := make(chan struct{}), make(chan struct{})
		s.watched = func(resource string, n int) []event {
			if resource != "pods" || n > 1 {
				return []event{}
			}
			close(ready)
			<-expire
			s.mu.Lock()
			s.objects["pods"] = append(pods("b"), thing("c", nil))
			s.mu.Unlock()
			return []event{{"ERROR", failure(http.StatusGone, "Expired")}}
		}
		r := s.source().ready()
		r.named("Pod grove/a", "Pod grove/b")
		<-ready
		close(expire)
		r.named("Pod grove/a", "Pod grove/c")
		if r.Get(shape.ID{Kind: shape.Pod, Namespace: "grove", Name: "a"}) != nil {
			t.Error("a pod that is gone is still known")
		}
		// It happens to every watch that is quiet for long: no error is counted.
		if got := testutil.ToFloat64(r.errors.WithLabelValues("Pod")); got != 0 {
			t.Errorf("%v errors are counted", got)
		}
	}
}

// TestWatchFails: an error in a watch, and a watch that is cut off, are counted
// and begun again; the other kinds hear nothing of it.
func TestWatchFails(t *testing.T) {
	s := newStub(t)
	s.streams = true
	s.objects["pods"] = pods("a")
	s.watched = func(resource string, n int) []event {
		switch {
		case resource != "pods":
		case n == 1:
			return []event{{"ERROR", failure(http.StatusInternalServerError, "InternalError")}}
		case n == 2:
			return nil
		case n == 3:
			return []event{{"NONSENSE", kinded("pods", thing("x", nil))}}
		case n == 4:
			return []event{{"ADDED", kinded("pods", thing("b", fields{"metadata": fields{"resourceVersion": "12"}}))}}
		}
		return []event{}
	}
	r := s.source().ready()
	r.named("Pod grove/a", "Pod grove/b")
	for name, n := range s.counts(s.watches) {
		if name != "pods" && n != 1 {
			t.Errorf("%s: %d watches", name, n)
		}
	}
}

// TestValueOfTheFuture: a value that this version does not know stops neither its
// object nor its kind.
func TestValueOfTheFuture(t *testing.T) {
	s := newStub(t)
	s.streams = true
	s.objects["pods"] = []any{
		thing("later", fields{"status": fields{"phase": "Hibernating", "later": fields{"a": 1}}, "spec": fields{"containers": []any{fields{"name": "c", "restartPolicy": "Perhaps"}}}}),
		thing("plain", nil),
	}
	s.objects["services"] = []any{thing("s", fields{"spec": fields{"type": "Teleport", "internalTrafficPolicy": "Near", "ipFamilies": []any{"IPv9"}}})}
	s.objects["endpointslices"] = []any{thing("e", fields{"addressType": "IPv9", "endpoints": []any{fields{"addresses": []any{"::"}, "hints": fields{"forPlanets": []any{}}}}})}
	r := s.source().ready()
	r.named("EndpointSlice grove/e", "Pod grove/later", "Pod grove/plain", "Service grove/s")
	got, ok := r.Get(shape.ID{Kind: shape.Pod, Namespace: "grove", Name: "later"}).(*corev1.Pod)
	if !ok || got.Status.Phase != "Hibernating" {
		t.Errorf("pod %+v", got)
	}
	if skipped := r.Trouble().Skipped; len(skipped) > 0 {
		t.Errorf("skipped %+v", skipped)
	}
}

// TestManagedFieldsWithoutTime (A17): neither stops anything, and none is kept.
func TestManagedFieldsWithoutTime(t *testing.T) {
	s := newStub(t)
	s.streams = true
	managed := fields{"metadata": fields{"managedFields": []any{
		fields{"manager": "x", "operation": "Apply", "time": nil}, fields{"manager": "y"}, fields{"manager": "z", "fieldsType": "FieldsV1", "fieldsV1": fields{"f:metadata": fields{}}},
	}}}
	want := []string{}
	for _, resource := range core {
		s.objects[resource] = []any{thing("x", managed)}
	}
	for _, kind := range []string{"EndpointSlice", "Job", "Namespace", "Node", "Pod", "ReplicaSet", "Service"} {
		name := kind + " grove/x"
		want = append(want, name)
	}
	r := s.source().ready()
	r.named(want...)
	for _, k := range shape.Kinds {
		if k.Custom {
			continue
		}
		o := r.Get(shape.ID{Kind: k.Kind, Namespace: "grove", Name: "x"})
		if o == nil {
			t.Errorf("%s is not known", k.Kind)
		} else if n := len(o.GetManagedFields()); n > 0 {
			t.Errorf("%s keeps %d managed fields", k.Kind, n)
		}
	}
}
