// Package simtest runs the watcher's own rooms, from an object to the log, on a
// bus and against an API that a test holds in its hands. It is the one door by
// which the simulation enters this module; it is for tests only.
package simtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/watcher/internal/dir"
	"github.com/weftmesh/weft/services/watcher/internal/publish"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
	"github.com/weftmesh/weft/services/watcher/internal/source"
)

// API stands for the Kubernetes API: what objects there are now, and who is
// told of their changes.
type API struct {
	mu       sync.Mutex
	objects  map[shape.ID]metav1.Object
	watchers []*Watcher
	granted  int // how often the lease was; the last one is good
}

// NewAPI makes one without objects.
func NewAPI() *API { return &API{objects: map[shape.ID]metav1.Object{}} }

// Apply creates or replaces the objects of a manifest.
func (a *API) Apply(manifest string) error {
	parsed := dir.Parse([]byte(manifest))
	if parsed.Broken != nil {
		return fmt.Errorf("reading a manifest: %w", parsed.Broken)
	}
	if len(parsed.Strays) > 0 {
		return errors.New("reading a manifest: " + parsed.Strays[0])
	}
	for _, item := range parsed.Items {
		a.set(item.ID, item.Obj)
	}
	return nil
}

// Delete removes an object; it need not exist.
func (a *API) Delete(kind, namespace, name string) {
	a.set(shape.ID{Kind: shape.Kind(kind), Namespace: namespace, Name: name}, nil)
}

func (a *API) set(id shape.ID, obj metav1.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if obj == nil {
		delete(a.objects, id)
	} else {
		a.objects[id] = obj
	}
	for _, w := range a.watchers {
		w.src.hear(id, obj)
	}
}

// Watcher is one watcher process: a copy of the log, a writer, and what lies
// between them and the API.
type Watcher struct {
	api       *API
	src       *src
	reader    *bus.Reader
	writer    *bus.Writer
	publisher *publish.Publisher
	grants    chan term
}

type term struct {
	grant int
	ctx   context.Context //nolint:containedctx // a leadership's life
	lose  context.CancelFunc
}

// NewWatcher makes a process that watches the API and is on the bus by t. Run
// runs it; it leads when Lead says so.
func (a *API) NewWatcher(t bus.Transport) *Watcher {
	w := &Watcher{api: a, grants: make(chan term, 1)}
	w.src = newSrc(w)
	w.reader = bus.NewReader(t, bus.ReaderConfig{})
	w.writer = bus.NewWriter(t, w.reader, bus.WriterConfig{})
	w.publisher = publish.New(w.src, w.writer, w.reader, publish.Config{Log: slog.New(slog.DiscardHandler)})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchers = append(a.watchers, w)
	w.src.relist(a.objects)
	close(w.src.synced)
	return w
}

// Run runs the process until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, part := range []func(context.Context) error{w.reader.Run, w.writer.Run, w.publisher.Run, w.publisher.Elect} {
		wg.Go(func() { _ = part(ctx) })
	}
	wg.Wait()
}

// Lead gives the process the lease. It goes on as the leader until lose is
// called, even if another has been given the lease in the meantime: so a process
// behaves that was stopped and goes on. Only when it looks at its lease, just
// before it writes, does it find out.
func (w *Watcher) Lead(ctx context.Context) (lose func()) {
	ctx, cancel := context.WithCancel(ctx)
	w.api.mu.Lock()
	w.api.granted++
	grant := w.api.granted
	w.api.mu.Unlock()
	for t := (term{grant, ctx, cancel}); ; {
		select {
		case w.grants <- t:
			return cancel
		case <-w.grants: // an older one, which it has not seen and which is good no more
		}
	}
}

// Leading tells whether the process writes the log.
func (w *Watcher) Leading() bool { return w.publisher.Leading() }

// Stall keeps the process from hearing of changes.
func (a *API) Stall(w *Watcher) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.src.stall(true)
}

// Resume lets a stalled process list everything again and hear on.
func (a *API) Resume(w *Watcher) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.src.stall(false)
	w.src.relist(a.objects)
}

// src is what one process sees of the API.
type src struct {
	queue  *source.Queue
	synced chan struct{}
	of     *Watcher

	mu      sync.Mutex
	stalled bool
	objects map[shape.ID]metav1.Object
}

var _ source.Source = (*src)(nil)

func newSrc(of *Watcher) *src {
	return &src{queue: source.NewQueue(), synced: make(chan struct{}), of: of, objects: map[shape.ID]metav1.Object{}}
}

func (s *src) hear(id shape.ID, obj metav1.Object) {
	s.mu.Lock()
	if s.stalled {
		s.mu.Unlock()
		return
	}
	s.keep(id, obj)
	s.mu.Unlock()
	s.queue.Add(id, time.Now())
}

func (s *src) keep(id shape.ID, obj metav1.Object) {
	if obj == nil {
		delete(s.objects, id)
		return
	}
	s.objects[id] = obj
}

func (s *src) stall(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = on
}

func (s *src) relist(all map[shape.ID]metav1.Object) {
	s.mu.Lock()
	names := maps.Clone(s.objects)
	maps.Copy(names, all)
	s.objects = maps.Clone(all)
	s.mu.Unlock()
	for _, id := range slices.SortedFunc(maps.Keys(names), compare) {
		s.queue.Add(id, time.Now())
	}
}

func (s *src) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func (s *src) Changes() *source.Queue { return s.queue }

func (s *src) Synced() <-chan struct{} { return s.synced }

func (s *src) Get(id shape.ID) metav1.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[id]
}

func (s *src) List(kind shape.Kind, namespace string, each func(metav1.Object)) {
	s.mu.Lock()
	var found []shape.ID
	for id := range s.objects {
		if id.Kind == kind && id.Namespace == namespace {
			found = append(found, id)
		}
	}
	slices.SortFunc(found, compare)
	objects := make([]metav1.Object, 0, len(found))
	for _, id := range found {
		objects = append(objects, s.objects[id])
	}
	s.mu.Unlock()
	for _, obj := range objects {
		each(obj)
	}
}

func (s *src) Derives() bool { return false }

func (s *src) Trouble() source.Trouble { return source.Trouble{} }

// Elect leads as the real source does: with what the API has now.
func (s *src) Elect(ctx context.Context, lead func(context.Context, func() error)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case t := <-s.of.grants:
			stop := context.AfterFunc(ctx, t.lose)
			s.of.api.Resume(s.of)
			lead(t.ctx, func() error { return s.of.check(t) })
			stop()
		}
	}
}

var errNoLease = errors.New("the lease is another's")

// check looks at the lease. One that was another's for a moment is lost, even
// if the same process has it again by now.
func (w *Watcher) check(t term) error {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	if w.api.granted != t.grant {
		return errNoLease
	}
	return t.ctx.Err()
}

func compare(a, b shape.ID) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Forget tells a process that has ended of nothing any more.
func (a *API) Forget(w *Watcher) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchers = slices.DeleteFunc(a.watchers, func(o *Watcher) bool { return o == w })
}
