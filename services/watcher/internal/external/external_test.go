package external

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
	"github.com/weftmesh/weft/services/watcher/internal/source"
)

// world is an API server whose watch may be late, and a leadership.
type world struct {
	t      *testing.T
	c      *Controller
	synced chan struct{}

	mu      sync.Mutex
	objects map[shape.ID]metav1.Object // as the watch shows them
	late    []func()                   // what it does not show yet
	delay   bool
	trouble source.Trouble
	fail    error
	lost    error
	leads   bool
	serial  int
	done    []string
}

func begin(t *testing.T) *world {
	t.Helper()
	x := &world{t: t, synced: make(chan struct{}), objects: make(map[shape.ID]metav1.Object), leads: true}
	close(x.synced)
	term, end := context.WithCancel(t.Context())
	x.c = New(x, x, Config{
		Term: func() (context.Context, func() error, bool) {
			x.mu.Lock()
			defer x.mu.Unlock()
			return term, x.check, x.leads
		},
		Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- x.c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v", err)
		}
		end()
	})
	x.put(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "grove", Name: "plum", UID: "s"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "plum"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	})
	synctest.Wait()
	return x
}

func (x *world) check() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lost
}

func (x *world) Synced() <-chan struct{} { return x.synced }

func (x *world) Trouble() source.Trouble {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.trouble
}

func (x *world) Get(id shape.ID) metav1.Object {
	x.mu.Lock()
	defer x.mu.Unlock()
	if obj, ok := x.objects[id]; ok {
		return obj
	}
	return nil
}

func (x *world) All(kind shape.Kind) iter.Seq[metav1.Object] {
	return func(yield func(metav1.Object) bool) {
		x.mu.Lock()
		var all []metav1.Object
		for id, obj := range x.objects {
			if id.Kind == kind {
				all = append(all, obj)
			}
		}
		x.mu.Unlock()
		for _, obj := range all {
			if !yield(obj) {
				return
			}
		}
	}
}

// shown applies a change to what the watch shows, perhaps later.
func (x *world) shown(change func()) {
	if x.delay {
		x.late = append(x.late, change)
		return
	}
	change()
}

func sliceID(namespace, name string) shape.ID {
	return shape.ID{Kind: shape.EndpointSlice, Namespace: namespace, Name: name}
}

func (x *world) Create(_ context.Context, es *discoveryv1.EndpointSlice) (string, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.fail != nil {
		return "", x.fail
	}
	x.serial++
	made := es.DeepCopy()
	made.Name, made.ResourceVersion = fmt.Sprint(es.GenerateName, x.serial), strconv.Itoa(x.serial)
	x.done = append(x.done, "create "+made.Name)
	x.shown(func() { x.objects[sliceID(made.Namespace, made.Name)] = made })
	return made.Name, nil
}

func (x *world) Update(_ context.Context, es *discoveryv1.EndpointSlice) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.fail != nil {
		return x.fail
	}
	x.serial++
	made := es.DeepCopy()
	made.ResourceVersion = strconv.Itoa(x.serial)
	x.done = append(x.done, fmt.Sprintf("update %s to %d", made.Name, len(made.Endpoints)))
	x.shown(func() { x.objects[sliceID(made.Namespace, made.Name)] = made })
	return nil
}

func (x *world) Delete(_ context.Context, namespace, name string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.fail != nil {
		return x.fail
	}
	x.done = append(x.done, "delete "+name)
	x.shown(func() { delete(x.objects, sliceID(namespace, name)) })
	return nil
}

func (x *world) put(obj metav1.Object) {
	kind := shape.ExternalWorkloads
	if _, ok := obj.(*corev1.Service); ok {
		kind = shape.Service
	}
	x.mu.Lock()
	x.objects[shape.IDOf(kind, obj)] = obj
	x.mu.Unlock()
}

func (x *world) workload(n int) {
	x.put(parse(x.t, fmt.Sprintf(`{"metadata":{"name":"vm-%d","namespace":"grove","uid":"u-%d","labels":{"app":"plum"}},
"spec":{"meshTLS":{"identity":"i","serverName":"s"},"ports":[{"port":80}],"workloadIPs":[{"ip":"10.9.0.%d"}]}}`, n, n, n)))
}

func (x *world) remove(kind shape.Kind, name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.objects, shape.ID{Kind: kind, Namespace: "grove", Name: name})
}

func (x *world) set(change func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	change()
}

// wrote says that a workload's row is in the log, and waits a moment.
func (x *world) wrote() {
	x.c.Wrote([]bus.Change{{Table: busv1.Table_TABLE_WORKLOADS, Key: shape.WorkloadKey(busv1.Workload_KIND_EXTERNAL, "grove", "vm-1")}})
	pass(200 * time.Millisecond)
}

func (x *world) expect(what string, want ...string) {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	if d := cmp.Diff(want, x.done); d != "" {
		x.t.Errorf("%s: done (-want +got):\n%s", what, d)
	}
	x.done = nil
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

const first = "linkerd-external-plum-1"

// TestWorkloadsComeAndGo: soon after its row, and nothing is written twice.
func TestWorkloadsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := begin(t)
		x.wrote()
		x.expect("no workload")
		x.workload(1)
		x.wrote()
		x.expect("the first", "create "+first)
		x.workload(2)
		x.wrote()
		x.expect("the second", "update "+first+" to 2")
		x.c.Wrote([]bus.Change{{Table: busv1.Table_TABLE_ROUTES, Key: "x"}})
		pass(time.Minute)
		x.expect("a quiet minute")
		x.remove(shape.ExternalWorkloads, "vm-1")
		x.wrote()
		x.expect("one goes", "update "+first+" to 1")
		x.remove(shape.Service, "plum")
		pass(10 * time.Second)
		x.expect("the Service goes", "delete "+first)
	})
}

// TestWorkloadsOfOthers (complaint A13): a workload of another namespace is none
// of the Service's, whatever its labels.
func TestWorkloadsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := begin(t)
		x.put(&shape.ExternalWorkload{
			ObjectMeta: metav1.ObjectMeta{Namespace: "thicket", Name: "vm-1", UID: "w", Labels: map[string]string{"app": "plum"}},
		})
		x.wrote()
		x.expect("a workload of another namespace")
		x.workload(1)
		x.wrote()
		x.expect("one of its own", "create "+first)
		if got := slicesOf(x); len(got) != 1 || len(got[0].Endpoints) != 1 || got[0].Endpoints[0].TargetRef.Namespace != "grove" {
			t.Errorf("slices %v, want one endpoint, of grove", got)
		}
	})
}

// slicesOf are the EndpointSlices that there are.
func slicesOf(x *world) (out []*discoveryv1.EndpointSlice) {
	for obj := range x.All(shape.EndpointSlice) {
		if es, ok := obj.(*discoveryv1.EndpointSlice); ok {
			out = append(out, es)
		}
	}
	return out
}

// TestLateWatch: what was written is not written again while the watch does not
// show it, but is not waited for for ever.
func TestLateWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := begin(t)
		x.set(func() { x.delay = true })
		x.workload(1)
		x.wrote()
		x.expect("the first", "create "+first)
		x.workload(2)
		for range 20 {
			x.wrote()
		}
		x.expect("the watch is late")
		x.set(func() {
			for _, change := range x.late {
				change()
			}
			x.late, x.delay = nil, false
		})
		x.wrote()
		x.expect("it is there", "update "+first+" to 2")
		x.set(func() { x.delay = true })
		x.workload(3)
		x.wrote()
		x.expect("the third", "update "+first+" to 3")
		pass(showLimit + 11*time.Second)
		x.expect("the watch never shows it", "update "+first+" to 3")
	})
}

// TestOnlyTheLeaderWrites: without a term nothing is written, and a lost lease
// stops in the middle.
func TestOnlyTheLeaderWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := begin(t)
		x.set(func() { x.leads = false })
		x.workload(1)
		x.wrote()
		pass(time.Minute)
		x.expect("another leads")
		x.set(func() { x.leads, x.lost = true, errors.New("the lease is not held any more") })
		x.wrote()
		pass(time.Minute)
		x.expect("the lease is lost")
	})
}

// TestUnknownIsNotGone: workloads that may not be read keep their slices.
func TestUnknownIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := begin(t)
		x.workload(1)
		x.workload(2)
		x.wrote()
		x.expect("two", "create "+first)
		bad := &shape.Bad{Kind: shape.ExternalWorkloads}
		bad.Namespace, bad.Name = "grove", "vm-2"
		x.put(bad)
		x.wrote()
		x.expect("one is bad now")
		x.set(func() { x.trouble.Unread = []shape.Kind{shape.ExternalWorkloads} })
		x.remove(shape.ExternalWorkloads, "vm-1")
		x.remove(shape.ExternalWorkloads, "vm-2")
		x.wrote()
		x.expect("the kind is hidden")
		x.set(func() { x.trouble.Unread = nil })
		x.wrote()
		x.expect("it is seen to be empty", "delete "+first)
	})
}

// TestRefusals: a Service that is refused waits for ever longer, and is tried at
// once when it only had changed in between.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := begin(t)
		x.set(func() { x.fail = apierrors.NewForbidden(schema.GroupResource{Resource: "endpointslices"}, "", nil) })
		x.workload(1)
		x.wrote()
		pass(time.Hour)
		n := testutil.ToFloat64(x.c.writes.WithLabelValues(doneCreated, "failed"))
		if n < 10 || n > 25 {
			t.Errorf("%v attempts in an hour, want some", n)
		}
		x.set(func() { x.fail = nil })
		pass(maxBackoff + 10*time.Second)
		x.expect("allowed", "create "+first)

		x.set(func() {
			x.fail = apierrors.NewConflict(schema.GroupResource{Resource: "endpointslices"}, first, errors.New("changed"))
		})
		x.workload(2)
		x.wrote()
		x.set(func() { x.fail = nil })
		pass(afterConflict)
		x.wrote()
		x.expect("changed in between", "update "+first+" to 2")
		if !slices.Equal(x.keys(), []string{first}) {
			t.Errorf("slices %v", x.keys())
		}
	})
}

func (x *world) keys() (out []string) {
	for obj := range x.All(shape.EndpointSlice) {
		out = append(out, obj.GetName())
	}
	return out
}
