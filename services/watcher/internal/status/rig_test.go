package status

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// world is an API server, a leadership and a policy, of which everything may fail.
type world struct {
	t      *testing.T
	synced chan struct{}
	heard  chan *busv1.Presence
	reg    *prometheus.Registry
	w      *Writer

	mu      sync.Mutex
	objects map[shape.ID]metav1.Object
	version int
	patches []string // names of what was patched, in order
	fail    func(ctx context.Context, id shape.ID) error
	term    context.Context
	endTerm context.CancelFunc
	lost    error
	wanted  bus.Wanted
	asks    []string
	refuse  func(n int) error
}

// begin runs a writer that leads, inside a bubble.
func begin(t *testing.T) *world {
	t.Helper()
	x := &world{
		t: t, synced: make(chan struct{}), heard: make(chan *busv1.Presence), reg: prometheus.NewRegistry(),
		objects: make(map[shape.ID]metav1.Object), wanted: bus.Wanted{Epoch: 1, Seq: 1},
	}
	close(x.synced)
	x.lead()
	x.w = New(x, Config{
		Term: func() (context.Context, func() error, bool) {
			x.mu.Lock()
			defer x.mu.Unlock()
			return x.term, x.check, x.term != nil
		},
		At: func() (uint64, uint64) {
			x.mu.Lock()
			defer x.mu.Unlock()
			return x.wanted.Epoch, x.wanted.Seq
		},
		Ask: x.ask, Hear: x.hear, Registry: x.reg, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- x.w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v", err)
		}
		x.endTerm()
	})
	synctest.Wait()
	return x
}

func (x *world) lead() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.term, x.endTerm = context.WithCancel(x.t.Context())
	x.lost = nil
}

func (x *world) check() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lost
}

func (x *world) Synced() <-chan struct{} { return x.synced }

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
		defer x.mu.Unlock()
		for id, obj := range x.objects {
			if id.Kind == kind {
				x.mu.Unlock()
				ok := yield(obj)
				x.mu.Lock()
				if !ok {
					return
				}
			}
		}
	}
}

func (x *world) PatchStatus(ctx context.Context, id shape.ID, patch []byte) error {
	if fail := x.failing(); fail != nil {
		if err := fail(ctx, id); err != nil {
			return err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	obj := x.objects[id].(*shape.HTTPRoute)
	if want := fmt.Sprintf(`"resourceVersion":%q`, obj.ResourceVersion); !strings.Contains(string(patch), want) {
		return apierrors.NewConflict(schema.GroupResource{}, id.Name, errors.New("changed"))
	}
	fresh := *obj
	x.objects[id] = patched(x.t, &fresh, patch)
	x.bump(x.objects[id])
	x.patches = append(x.patches, id.Name)
	return nil
}

func (x *world) failing() func(context.Context, shape.ID) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.fail
}

func (x *world) bump(obj metav1.Object) {
	x.version++
	obj.SetResourceVersion(strconv.Itoa(x.version))
}

func (x *world) ask(_ context.Context, epoch, seq uint64) (bus.Wanted, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asks = append(x.asks, fmt.Sprintf("%d/%d", epoch, seq))
	if x.refuse != nil {
		if err := x.refuse(len(x.asks)); err != nil {
			return bus.Wanted{}, err
		}
	}
	return x.wanted, nil
}

func (x *world) hear(ctx context.Context) iter.Seq2[*busv1.Presence, error] {
	return func(yield func(*busv1.Presence, error) bool) {
		for {
			select {
			case p := <-x.heard:
				if !yield(p, nil) {
					return
				}
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			}
		}
	}
}

func route(name string) shape.ID {
	return shape.ID{Kind: shape.HTTPRoutes, Namespace: "grove", Name: name}
}

// put puts a route into the cluster, in a generation.
func (x *world) put(name string, generation int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	fresh := &shape.HTTPRoute{}
	if old, ok := x.objects[route(name)].(*shape.HTTPRoute); ok {
		*fresh = *old
	}
	fresh.Name, fresh.Namespace, fresh.UID, fresh.Generation = name, "grove", "u", generation
	x.bump(fresh)
	x.objects[route(name)] = fresh
}

// want makes policy accept routes of a generation, as of the next cut.
func (x *world) want(generation int64, names ...string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.wanted.Seq++
	x.wanted.Statuses = nil
	for _, name := range names {
		x.wanted.Statuses = append(x.wanted.Statuses, &busv1.Status{
			Key:   bus.Key("gateway.networking.k8s.io", "HTTPRoute", "grove", name),
			Group: "gateway.networking.k8s.io", Kind: "HTTPRoute", Namespace: "grove", Name: name, Uid: "u", Generation: generation,
			Parents: []*busv1.ParentStatus{{ParentKind: "Service", ParentName: "plum", Conditions: []*busv1.Condition{{Type: "Accepted", Holds: true, Reason: "Accepted"}}}},
		})
	}
}

// wrote tells the writer of rows, and waits as long as it may take to react.
func (x *world) wrote(table busv1.Table) {
	x.w.Wrote([]bus.Change{{Table: table}})
	pass(200 * time.Millisecond)
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

// took is what was patched and how often policy was asked since the last time.
func (x *world) took() (patches []string, asks int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	patches, asks = x.patches, len(x.asks)
	x.patches, x.asks = nil, nil
	return patches, asks
}

func (x *world) conditions(name string) string {
	obj := x.Get(route(name)).(*shape.HTTPRoute)
	return string(obj.Status)
}

// counted is a counter's value.
func (x *world) counted(name string) float64 {
	x.t.Helper()
	families, err := x.reg.Gather()
	if err != nil {
		x.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	x.t.Fatalf("no metric %s", name)
	return 0
}
