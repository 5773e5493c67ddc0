package herald

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weftmesh/weft/services/watcher/internal/census"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// stage has pods of an annotated namespace.
type stage struct {
	mu     sync.Mutex
	pods   []*corev1.Pod
	synced chan struct{}
}

func (s *stage) Pods() iter.Seq[*corev1.Pod] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Values(slices.Clone(s.pods))
}

func (s *stage) Get(id shape.ID) metav1.Object {
	if id.Kind == shape.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"linkerd.io/inject": "enabled"}}}
	}
	return nil
}

func (s *stage) Synced() <-chan struct{} { return s.synced }

func (s *stage) set(pods ...*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = pods
}

func pod(owner, name string, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "grove", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Now(),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: owner, UID: types.UID("uid-" + owner)}},
	}}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
	}
	return p
}

// book is an events API.
type book struct {
	mu      sync.Mutex
	events  map[string]*corev1.Event
	creates int
	patches int
	err     error
	hung    bool
}

func (b *book) begin(ctx context.Context) error {
	b.mu.Lock()
	err, hung := b.err, b.hung
	b.mu.Unlock()
	if hung {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (b *book) Create(ctx context.Context, e *corev1.Event) error {
	b.mu.Lock()
	b.creates++
	b.mu.Unlock()
	if err := b.begin(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.events[e.Name] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "events"}, e.Name)
	}
	b.events[e.Name] = e
	return nil
}

func (b *book) Patch(ctx context.Context, _, name string, patch []byte) error {
	b.mu.Lock()
	b.patches++
	b.mu.Unlock()
	if err := b.begin(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.events[name]
	if e == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, name)
	}
	next := e.DeepCopy()
	if err := json.Unmarshal(patch, next); err != nil {
		return err
	}
	b.events[name] = next
	return nil
}

func (b *book) set(err error, hung bool) { b.mu.Lock(); defer b.mu.Unlock(); b.err, b.hung = err, hung }

func (b *book) counts() (creates, patches int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.creates, b.patches
}

func (b *book) clear() { b.mu.Lock(); defer b.mu.Unlock(); clear(b.events) }

// list shows every event: type reason owner count.
func (b *book) list() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, e := range b.events {
		out = append(out, fmt.Sprintf("%s %s %s/%s x%d", e.Type, e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Count))
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

type rig struct {
	t *testing.T
	*stage
	*book
	leading atomic.Bool
	herald  *Herald
	stop    func()
}

// open runs a herald in a bubble of virtual time, with everything listed.
func open(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, stage: &stage{synced: make(chan struct{})}, book: &book{events: make(map[string]*corev1.Event)}}
	close(r.synced)
	r.leading.Store(true)
	r.start()
	return r
}

func (r *rig) start() {
	r.herald = New(r.stage, r.book, Config{Leading: r.leading.Load, Instance: "w", Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.herald.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("Run() = %v", err)
		}
	})
	r.t.Cleanup(r.stop)
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (r *rig) want(list string) {
	r.t.Helper()
	if got := r.list(); got != list {
		r.t.Errorf("events: %s\nwant: %s", got, list)
	}
}

func TestUnmeshedIsToldOnceAndRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		synctest.Wait()
		r.stage.set(pod("web", "a", "app"), pod("web", "b", "app"), pod("db", "c", "app", "linkerd-proxy"))
		pass(30 * time.Second)
		const both = "Normal Injected DaemonSet/db x1; Warning InjectionSkipped DaemonSet/web x2"
		r.want(both)
		if got := testutil.ToFloat64(r.herald.unmeshed.WithLabelValues(string(census.NotInjected))); got != 2 || r.herald.Unmeshed() != 2 {
			t.Errorf("%v pods counted, want 2", got)
		}
		pass(20 * time.Minute)
		if creates, patches := r.counts(); creates != 2 || patches != 0 {
			t.Errorf("%d creates and %d patches in 20 minutes, want 2 and 0", creates, patches)
		}
		pass(11 * time.Minute)
		if creates, patches := r.counts(); creates != 2 || patches != 1 {
			t.Errorf("%d creates and %d patches in 31 minutes, want 2 and 1", creates, patches)
		}
		r.clear() // their hour is over
		pass(30 * time.Minute)
		r.want("Warning InjectionSkipped DaemonSet/web x2")
		r.stage.set()
		pass(20 * time.Second)
		r.stop()
		if n := len(r.herald.told); n != 0 {
			t.Errorf("%d keys are kept without a pod", n)
		}
		if got := testutil.ToFloat64(r.herald.unmeshed.WithLabelValues(string(census.NotInjected))); got != 0 {
			t.Errorf("%v pods counted, want 0", got)
		}
	})
}

func TestOnlyTheLeaderWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		r.leading.Store(false)
		r.stage.set(pod("web", "a", "app"))
		pass(time.Minute)
		r.want("")
		if got := testutil.ToFloat64(r.herald.unmeshed.WithLabelValues(string(census.NotInjected))); got != 1 {
			t.Errorf("a standby counts %v pods, want 1", got)
		}
		r.leading.Store(true)
		pass(10 * time.Second)
		r.want("Warning InjectionSkipped DaemonSet/web x1")
		r.start() // another watcher takes over and meets what was told
		pass(time.Minute)
		r.want("Warning InjectionSkipped DaemonSet/web x1")
		if creates, _ := r.counts(); creates != 2 {
			t.Errorf("%d creates, want one by each leader", creates)
		}
	})
}

// TestFailingAPI: whatever it does, counting goes on, the API is not stormed, and
// all is told in the end.
func TestFailingAPI(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 40 {
		pods = append(pods, pod(fmt.Sprint("web", i), fmt.Sprint("p", i), "app"))
	}
	events := schema.GroupResource{Resource: "events"}
	for name, c := range map[string]struct {
		err  error
		hung bool
	}{
		"refused":   {errors.New("connection refused"), false},
		"hung":      {nil, true},
		"forbidden": {apierrors.NewForbidden(events, "", errors.New("no")), false},
		"busy":      {apierrors.NewTooManyRequests("later", 1), false},
		"internal":  {apierrors.NewInternalError(errors.New("etcd")), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := open(t)
				r.book.set(c.err, c.hung)
				r.stage.set(pods...)
				pass(10 * time.Minute)
				if creates, _ := r.counts(); creates > 10*6*mostFails+mostFails {
					t.Errorf("%d attempts in ten minutes", creates)
				}
				if got := testutil.ToFloat64(r.herald.unmeshed.WithLabelValues(string(census.NotInjected))); got != 40 {
					t.Errorf("%v pods counted, want 40", got)
				}
				r.book.set(nil, false)
				pass(6 * time.Minute)
				if n := strings.Count(r.list(), "Warning"); n != 40 {
					t.Errorf("%d warnings after the API was back, want 40", n)
				}
			})
		})
	}
}

// TestRate: many notices at once are written one after the other.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		synctest.Wait()
		var pods []*corev1.Pod
		for i := range 1000 {
			pods = append(pods, pod(fmt.Sprint("web", i), fmt.Sprint("p", i), "app"))
		}
		r.stage.set(pods...)
		pass(20 * time.Second)
		if creates, _ := r.counts(); creates < 150 || creates > 220 {
			t.Errorf("%d events in the 10 s after the first look, want about 200", creates)
		}
		pass(time.Minute)
		if creates, _ := r.counts(); creates != 1000 {
			t.Errorf("%d events in the end, want 1000", creates)
		}
	})
}

func TestNamesAreNames(t *testing.T) {
	for _, owner := range []string{"web", strings.Repeat("a", 253), strings.Repeat("a.", 126) + "a"} {
		n := name(&census.Notice{About: corev1.ObjectReference{Name: owner}})
		if errs := validation.IsDNS1123Subdomain(n); len(errs) > 0 {
			t.Errorf("%q: %v", n, errs)
		}
	}
}
